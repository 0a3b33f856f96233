// The messages of the chat on the page.

import { choose } from "./choice.js";
import { byId, make, number, setHidden } from "./dom.js";

/** Whether the list is scrolled to its end; only then does it follow what comes. */
function atEnd(list) {
  return list.scrollHeight - list.scrollTop - list.clientHeight < 40;
}

function append(node) {
  const list = byId("messages");
  list.append(node);
  list.scrollTop = list.scrollHeight;
  setHidden(byId("chat-empty"), true);
}

export function clearMessages() {
  byId("messages").replaceChildren();
  setHidden(byId("chat-empty"), false);
}

export function addQuestion(text, documents) {
  const parts = [make("p", { className: "who", text: "You" }), make("p", { className: "text", text })];
  if (documents) parts.push(make("p", { className: "hint", text: `with ${documents} document${documents > 1 ? "s" : ""}` }));
  const node = make("article", { className: "message user", "aria-label": "You" }, ...parts);
  append(node);
  return node;
}

/** An answer that grows: text by text, and at its end a line about it. */
export function addAnswer() {
  const text = document.createTextNode("");
  const who = make("p", { className: "who", text: "Model" });
  const body = make("p", { className: "text" }, text);
  const usage = make("p", { className: "hint usage" });
  const node = make("article", { className: "message model busy", "aria-label": "Model" }, who, body, usage);
  append(node);
  let coming = "";
  let planned = false;
  const flush = () => {
    const list = byId("messages");
    const follow = atEnd(list);
    text.appendData(coming);
    coming = "";
    planned = false;
    if (follow) list.scrollTop = list.scrollHeight;
  };
  return {
    node,
    grow(more) {
      coming += more;
      if (!planned) requestAnimationFrame(flush);
      planned = true;
    },
    end(line, failed = false) {
      flush();
      node.classList.remove("busy");
      node.classList.toggle("failed", failed);
      usage.textContent = line;
      byId("messages").scrollTop = byId("messages").scrollHeight;
    },
    linkTo(request) {
      if (node.querySelector(".at")) return;
      const button = make("button", { type: "button", className: "quiet at", text: `request ${request}` });
      button.addEventListener("click", () => choose(request));
      who.append(button);
    },
  };
}

const REASONS = { stop: "", length: "cut off at max tokens", stopped: "stopped by you" };

/** What an answer cost, in a line. */
export function usageLine(usage, reason, duration) {
  const parts = [];
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`${number(usage.prompt_tokens)} prompt tokens, ${number(cached)} of them cached`);
    parts.push(`${number(usage.completion_tokens)} output tokens in ${duration.toFixed(1)} s`);
  }
  const why = REASONS[reason] ?? reason;
  if (why) parts.push(why);
  return parts.join(" · ");
}
