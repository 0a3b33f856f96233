// The list of requests. One stop of the tab key; arrows move in it, Enter or a click chooses.

import { choose, chosenRequest, onChoice } from "./choice.js";
import { byId, make, many, number, setAttribute, setChildren, setClass, setHidden, setStyle, setText } from "./dom.js";
import { lookOf } from "./looks.js";
import { ENDED, inOrder, nameOf, promptComputed } from "./names.js";

const rows = new Map(); // request → row
let ordered = [];
let active = null; // the request that the arrows are at

function makeRow(request) {
  const cells = {};
  for (const name of ["swatch", "name", "state", "prompt", "output", "pages"]) {
    cells[name] = make("span", { className: name });
  }
  const tag = make("b");
  const label = make("span");
  cells.name.append(tag, " ", label);
  const node = make("div", { role: "option", id: `request-${request}`, "data-request": request, className: "row" },
    ...Object.values(cells));
  return { node, tag, label, ...cells };
}

/** The panel; call what it returns with each state. */
export function requestsPanel() {
  const list = byId("requests");
  list.addEventListener("keydown", move);
  list.addEventListener("focus", () => draw(active ?? ordered[0]?.request));
  list.addEventListener("click", (event) => {
    const request = Number(event.target.closest("[data-request]")?.dataset.request);
    if (!request) return;
    active = request;
    choose(chosenRequest() === request ? null : request);
  });
  onChoice(() => {
    active = chosenRequest() ?? active;
    draw(active);
    bringIntoView(rows.get(chosenRequest())?.node);
  });
  return (state) => {
    ordered = inOrder(state.requests);
    const there = new Set(ordered.map((each) => each.request));
    for (const request of rows.keys()) if (!there.has(request)) rows.delete(request);
    setChildren(list, ordered.map(drawRow));
    setHidden(list, ordered.length === 0);
    setHidden(byId("requests-empty"), ordered.length > 0);
    const going = ordered.filter((each) => !ENDED.has(each.state)).length;
    setText(byId("requests-line"), ordered.length ? `${number(going)} there, ${number(ordered.length - going)} ended` : "");
    draw(there.has(active) ? active : null);
  };
}

function drawRow(request) {
  if (!rows.has(request.request)) rows.set(request.request, makeRow(request.request));
  const row = rows.get(request.request);
  setClass(row.swatch, `swatch ${lookOf(request.request)}`);
  setText(row.tag, String(request.request));
  setText(row.label, nameOf(request));
  setText(row.state, stateText(request));
  setAttribute(row.state, "data-state", request.state);
  const computed = promptComputed(request);
  setText(row.prompt, `${number(computed)}/${number(request.prompt)}`);
  setStyle(row.prompt, "--share", (computed / Math.max(request.prompt, 1)).toFixed(3));
  setText(row.output, number(request.output));
  setText(row.pages, number(request.pages.length));
  setAttribute(row.node, "aria-label", spoken(request));
  return row.node;
}

function stateText({ state, preemptions }) {
  return preemptions && !ENDED.has(state) && state !== "preempted" ? `${state}, again` : state;
}

function spoken(request) {
  return `Request ${request.request}: ${nameOf(request)}. ${request.state}; ${number(promptComputed(request))} of ` +
    `${many(request.prompt, "prompt token")} computed, ${many(request.output, "output token")}, ` +
    `${many(request.pages.length, "page")}`;
}

/** Mark the chosen row, and the one that the arrows are at. */
function draw(at) {
  active = at ?? null;
  for (const [request, { node }] of rows) {
    const ended = node.querySelector("[data-state=finished], [data-state=cancelled], [data-state=failed]");
    setAttribute(node, "aria-selected", request === chosenRequest());
    setClass(node, `row${request === active ? " active" : ""}${ended ? " ended" : ""}`);
  }
  const list = byId("requests");
  if (rows.has(active)) setAttribute(list, "aria-activedescendant", `request-${active}`);
  else list.removeAttribute("aria-activedescendant");
}

function move(event) {
  const place = ordered.findIndex((each) => each.request === active);
  const moves = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: ordered.length - 1,
    PageDown: place + 10, PageUp: place - 10 };
  if (event.key === "Escape") choose(null);
  else if (event.key === "Enter" || event.key === " ") choose(chosenRequest() === active ? null : active);
  else if (event.key in moves) {
    draw(ordered[Math.min(Math.max(moves[event.key], 0), ordered.length - 1)]?.request);
    bringIntoView(rows.get(active)?.node);
  } else return;
  event.preventDefault();
}

/** Scroll the list, and only the list, as far as it needs. */
function bringIntoView(node) {
  if (!node) return;
  const list = byId("requests");
  const top = node.offsetTop;
  const least = top + node.offsetHeight - list.clientHeight;
  list.scrollTop = Math.min(Math.max(list.scrollTop, least), top);
}
