// Without a chat: the requests of the run that is watched, each with its answer.

import { choose, chosenRequest } from "./choice.js";
import { byId, make, setAttribute, setChildren, setClass, setHidden, setText } from "./dom.js";
import { lookOf } from "./looks.js";
import { nameOf } from "./names.js";

const cards = new Map(); // request → card

function makeCard(request) {
  const swatch = make("span", { className: "swatch" });
  const state = make("span", { className: "hint" });
  const button = make("button", { type: "button", className: "quiet who" }, swatch, make("b", { text: String(request) }), state);
  button.addEventListener("click", () => choose(request));
  const name = make("p", { className: "text asked" });
  const text = make("p", { className: "text" });
  return { node: make("li", { className: "message" }, button, name, text), button, swatch, state, name, text };
}

function drawCard(request) {
  if (!cards.has(request.request)) cards.set(request.request, makeCard(request.request));
  const card = cards.get(request.request);
  const mine = request.request === chosenRequest();
  setClass(card.node, `message${mine ? " mine" : ""}`);
  setAttribute(card.button, "aria-pressed", mine);
  setAttribute(card.button, "aria-label", `Request ${request.request}, ${request.state}`);
  setClass(card.swatch, `swatch ${lookOf(request.request)}`);
  setText(card.state, request.state);
  setText(card.name, nameOf(request));
  setText(card.text, request.text);
  return card.node;
}

export function drawRuns({ requests }) {
  const there = new Set(requests.map((each) => each.request));
  for (const request of cards.keys()) if (!there.has(request)) cards.delete(request);
  const ordered = [...requests].sort((one, other) => one.request - other.request);
  setChildren(byId("answers"), ordered.map(drawCard));
  setHidden(byId("answers"), ordered.length === 0);
  setHidden(byId("runs-empty"), ordered.length > 0);
}
