// Talking to the server: JSON in, JSON or server-sent events out. The key stays in this variable.

let key = "";

/** The server answered, but not with what was asked for; the message is its own, the status HTTP's. */
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function useKey(text) {
  key = text.trim();
}

function headers(more = {}) {
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

/** What the server said to an error, in words for a reader. */
async function refusal(response) {
  const wait = response.headers.get("Retry-After");
  const found = await response.json().catch(() => ({}));
  const said = found.error?.message ?? found.detail ?? `the server answered with status ${response.status}`;
  const text = sentence(typeof said === "string" ? said : JSON.stringify(said));
  if (response.status === 401) return `The server wants its API key: ${text}`;
  return response.status === 429 && wait ? `${text} Try again in ${wait} s.` : text;
}

/** With a capital letter and a full stop. */
function sentence(text) {
  const whole = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(whole) ? whole : `${whole}.`;
}

/** The response, if all is well.
 * @throws Refused, or an Error where there was no answer at all */
async function call(path, options) {
  let response;
  try {
    response = await fetch(path, { cache: "no-store", ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server doesn't answer.", { cause: error });
  }
  if (!response.ok) throw new Refused(await refusal(response), response.status);
  return response;
}

export async function getJson(path) {
  return (await call(path, {})).json();
}

export async function post(path, body, signal) {
  const type = { "Content-Type": "application/json" };
  return call(path, { method: "POST", headers: type, body: JSON.stringify(body), signal });
}

export async function open(path, signal) {
  return call(path, { headers: { Accept: "text/event-stream" }, signal });
}

/** The events of a response, as {event, data}; `heard` is called for every piece, also for mere comments. */
export async function* events(response, heard = () => {}) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    const lines = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = lines.pop();
    for (const each of lines) {
      const found = parse(each);
      if (found.data) yield found;
    }
  }
}

function parse(block) {
  const found = { event: "message", data: "" };
  const data = [];
  for (const line of block.split("\n")) {
    const [, name, value] = /^(\w+): ?(.*)$/.exec(line) ?? [];
    if (name === "event") found.event = value;
    if (name === "data") data.push(value);
  }
  found.data = data.join("\n");
  return found;
}
