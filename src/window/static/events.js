// The engine's states, as they come; after a break the connection is made again.

import { events, open } from "./stream.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 4000; // milliseconds
const SILENCE = 30_000; // the server sends a comment every 10 s

/** Follow the server for as long as the page is there.
 * @param onLink called with "on" or "off", and with what is wrong
 * @param onState called with each snapshot
 * @param begin awaited before each connection
 * @returns a function that connects anew at once */
export function follow({ onLink, onState, begin }) {
  let current = new AbortController();
  let wake = () => {};

  async function once() {
    current = new AbortController();
    let timer = 0;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => current.abort(), SILENCE);
    };
    try {
      await begin();
      heard();
      const response = await open("/window/events", current.signal);
      onLink("on");
      for await (const { event, data } of events(response, heard)) {
        if (event === "state") onState(JSON.parse(data));
      }
    } finally {
      clearTimeout(timer);
    }
  }

  async function always() {
    for (let wait = FIRST_WAIT; ; wait = Math.min(wait * 2, LONGEST_WAIT)) {
      const start = performance.now();
      await once().then(() => onLink("off"), (error) => onLink("off", error));
      if (performance.now() - start > LONGEST_WAIT) wait = FIRST_WAIT;
      await new Promise((resolve) => {
        wake = resolve;
        setTimeout(resolve, wait);
      });
    }
  }

  always();
  return () => {
    current.abort();
    wake();
  };
}
