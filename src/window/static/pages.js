// The pages: a square for each, in the look of the request that holds it.

import { choose, chosenRequest, onChoice } from "./choice.js";
import { byId, make, many, number, setAttribute, setClass, setText } from "./dom.js";
import { lookOf } from "./looks.js";

const MOST = 4096; // squares that are drawn
const MOST_NAMED = 8; // requests that hold a page

let owners = new Map(); // page → the requests that hold it
let cached = new Set();
let cells = [];
let looked = 1; // the page that the keyboard or the mouse is at

/** The panel; call what it returns with each state. */
export function pagesPanel(count) {
  const grid = byId("pages");
  const shown = Math.min(count, MOST);
  cells = Array.from({ length: shown }, (_, place) => make("span", { className: "cell", "data-page": place + 1 }));
  grid.replaceChildren(...cells);
  grid.dataset.size = shown <= 96 ? "large" : shown <= 320 ? "middle" : shown <= 640 ? "small" : "tiny";
  setAttribute(grid, "aria-valuemax", shown);
  looked = 1;
  grid.onkeydown = (event) => moveBy(event, grid);
  grid.onpointermove = (event) => look(Number(event.target.dataset?.page));
  grid.onclick = (event) => event.target.dataset.page && chooseOwner(Number(event.target.dataset.page));
  return (state) => {
    readOwners(state);
    draw(grid);
    drawLine(state.pages, count);
  };
}

function readOwners(state) {
  owners = new Map();
  for (const { request, pages } of state.requests) {
    for (const page of pages) {
      if (owners.has(page)) owners.get(page).push(request);
      else owners.set(page, [request]);
    }
  }
  cached = new Set(state.pages.cached);
}

function draw(grid) {
  const chosen = chosenRequest();
  const any = [...owners.values()].some((held) => held.includes(chosen));
  setClass(grid, any ? "grid has-choice" : "grid");
  const marks = document.activeElement === grid;
  cells.forEach((cell, place) => {
    const held = owners.get(place + 1);
    const mine = held?.includes(chosen);
    const cursor = marks && looked === place + 1 ? " cursor" : "";
    setClass(cell, classOf(held, mine, cached.has(place + 1), chosen) + cursor);
    setAttribute(cell, "data-tag", tagOf(held, mine, chosen));
  });
  describe();
}

function classOf(held, mine, isCached, chosen) {
  if (!held) return isCached ? "cell cached" : "cell";
  const look = lookOf(mine ? chosen : held[0]);
  return `cell owned ${look}${held.length > 1 ? " shared" : ""}${mine ? " mine" : ""}`;
}

/** The number of the request, where it fits into a square. */
function tagOf(held, mine, chosen) {
  const request = mine ? chosen : held?.[0];
  return request < 1000 ? String(request) : "";
}

function drawLine(pages, count) {
  const parts = [`${number(owners.size)} held`, `${number(pages.shared.length)} of them shared`,
    `${number(pages.cached.length)} cached`, `${number(pages.free)} free`];
  setText(byId("pages-line"), parts.join(" · ") + (count > MOST ? ` · the first ${number(MOST)} are drawn` : ""));
}

function look(page) {
  if (!page || page === looked) return;
  looked = page;
  draw(byId("pages"));
}

/** What the page is that one looks at, in words: below the squares, and as the value that is read out. */
function describe() {
  const held = owners.get(looked);
  let text = `Page ${looked}: free`;
  if (cached.has(looked)) text = `Page ${looked}: cached, held by no request`;
  if (held) text = `Page ${looked}: held by ${holdersOf(held)}`;
  setText(byId("page-line"), text);
  setAttribute(byId("pages"), "aria-valuenow", looked);
  setAttribute(byId("pages"), "aria-valuetext", text);
}

function holdersOf(held) {
  if (held.length === 1) return `request ${held[0]}`;
  const more = held.length > MOST_NAMED ? ` and ${held.length - MOST_NAMED} more` : "";
  return `${many(held.length, "request")}: ${held.slice(0, MOST_NAMED).join(", ")}${more}`;
}

/** How many squares stand in a row, as the browser laid them out. */
function columns() {
  const top = cells[0]?.offsetTop;
  const next = cells.findIndex((cell) => cell.offsetTop !== top);
  return next < 0 ? cells.length : next;
}

function moveBy(event, grid) {
  const row = columns();
  const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row, PageDown: 8 * row, PageUp: -8 * row,
    Home: -cells.length, End: cells.length };
  if (event.key === "Enter" || event.key === " ") chooseOwner(looked);
  else if (event.key in moves) look(Math.min(Math.max(looked + moves[event.key], 1), cells.length));
  else return;
  event.preventDefault();
  draw(grid);
}

/** The request that holds a page; on a shared page, the one after the chosen one. */
function chooseOwner(page) {
  looked = page;
  const held = owners.get(page) ?? [];
  const place = held.indexOf(chosenRequest());
  choose(held.length ? held[(place + 1) % held.length] : null);
}

export function watchPages() {
  const again = () => draw(byId("pages"));
  onChoice(again);
  byId("pages").addEventListener("focus", again);
  byId("pages").addEventListener("blur", again);
}
