// The chosen request: its numbers, its chunks as a timeline, its text.

import { choose, chosenRequest } from "./choice.js";
import { byId, make, makeSvg, many, number, seconds, setAttribute, setClass, setHidden, setText } from "./dom.js";
import { lookOf } from "./looks.js";
import { nameOf, promptComputed } from "./names.js";

const WIDTH = 640;
const HEIGHT = 64;
const FACTS = ["State", "Prompt", "Output", "Pages", "Waited", "Preempted", "Priority", "Client"];

function build() {
  const parts = { swatch: make("span", { className: "swatch" }), tag: make("b"), name: make("span") };
  const title = make("p", { className: "chosen-name" }, parts.swatch, parts.tag, parts.name);
  const list = make("dl", { className: "counts small" });
  parts.facts = FACTS.map((name) => {
    const value = make("dd");
    list.append(make("div", {}, make("dt", { text: name }), value));
    return value;
  });
  parts.drawing = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  parts.first = make("span");
  parts.last = make("span");
  const caption = make("p", { className: "caption" }, parts.first, make("span", { className: "key-of prompt", text: "prompt" }),
    make("span", { className: "key-of found", text: "found in the tree" }),
    make("span", { className: "key-of decode", text: "decode" }), parts.last);
  parts.chunks = make("figure", { className: "chunks" }, make("h4", { text: "Chunks, by step" }), parts.drawing, caption);
  parts.pages = make("p", { className: "page-list" });
  parts.text = make("p", { className: "answer-text", tabindex: "0", role: "region", "aria-label": "The answer so far" });
  byId("details").append(title, list, parts.chunks, make("h4", { text: "Its pages" }), parts.pages,
    make("h4", { text: "Its answer" }), parts.text);
  return parts;
}

/** The panel; call what it returns with each state. */
export function detailsPanel() {
  const parts = build();
  byId("let-go").addEventListener("click", () => choose(null));
  let last = null; // what was drawn: the chunks, as text
  return (state) => {
    const request = state.requests.find((each) => each.request === chosenRequest());
    setHidden(byId("details"), !request);
    setHidden(byId("let-go"), !request);
    setHidden(byId("details-empty"), Boolean(request));
    if (!request) return;
    setClass(parts.swatch, `swatch ${lookOf(request.request)}`);
    setText(parts.tag, String(request.request));
    setText(parts.name, nameOf(request));
    factsOf(request).forEach((text, place) => setText(parts.facts[place], text));
    setText(parts.pages, request.pages.join(", ") || "none");
    setText(parts.text, request.text || "no text yet");
    const key = `${request.request} ${state.step} ${request.chunks.length}`;
    if (key === last) return;
    last = key;
    drawChunks(parts, request);
  };
}

function factsOf(request) {
  return [
    request.state,
    `${number(promptComputed(request))} of ${number(request.prompt)}`,
    number(request.output),
    number(request.pages.length),
    seconds(request.waited),
    many(request.preemptions, "time"),
    String(request.priority),
    request.client || "–",
  ];
}

/** A column for each chunk: its place is its step, its height the square root of its tokens. */
function drawChunks(parts, { chunks, prompt }) {
  setHidden(parts.chunks, chunks.length === 0);
  if (!chunks.length) return;
  const [first] = chunks[0];
  const [last] = chunks.at(-1);
  const wide = WIDTH / Math.max(last - first + 1, 12);
  const most = Math.max(...chunks.map(([, , tokens, found]) => tokens + found), 16);
  const high = (tokens) => HEIGHT * Math.sqrt(tokens / most);
  const bars = chunks.flatMap(([step, start, tokens, found]) => {
    const box = { x: (step - first) * wide, width: Math.max(wide - 1.5, 1) };
    const low = high(tokens);
    const kind = start + tokens <= prompt ? "prompt" : "decode";
    const bar = makeSvg("rect", { ...box, y: HEIGHT - low, height: low, class: kind });
    const top = high(tokens + found);
    return found ? [bar, makeSvg("rect", { ...box, y: HEIGHT - top, height: top - low, class: "found" })] : [bar];
  });
  parts.drawing.replaceChildren(...bars);
  const total = chunks.reduce((count, [, , tokens]) => count + tokens, 0);
  setAttribute(parts.drawing, "aria-label",
    `${many(chunks.length, "chunk")} with ${many(total, "token")}, from step ${first} to step ${last}`);
  setText(parts.first, `step ${number(first)}`);
  setText(parts.last, `step ${number(last)}`);
}
