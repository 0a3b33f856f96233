// The tree of pages, indented. Pages that follow one another for the same requests are one line.

import { choose, chosenRequest } from "./choice.js";
import { byId, make, many, number, rowsOf, setAttribute, setClass, setHidden, setStyle, setText } from "./dom.js";
import { lookOf } from "./looks.js";

const MOST_TAGS = 8;
const DEEPEST = 12; // further levels aren't indented further
const LETTERS = 160;

function makeRow() {
  const level = make("span", { className: "unseen" });
  const tags = make("span", { className: "tags" });
  const pages = make("span", { className: "where" });
  const text = make("q");
  const row = { node: make("li", { className: "node" }, level, pages, tags, text), level, tags, pages, text, holders: [] };
  row.tagRows = rowsOf(tags, makeTag);
  return row;
}

function makeTag() {
  const node = make("span", { className: "swatch" });
  return { node };
}

/** The panel; call what it returns with each state. */
export function treePanel() {
  const rows = rowsOf(byId("tree"), makeRow);
  byId("tree").addEventListener("click", (event) => {
    const request = Number(event.target.closest("[data-request]")?.dataset.request);
    if (request) choose(request);
  });
  return (state) => {
    const lines = linesOf(state);
    lines.forEach((line, place) => drawRow(rows.row(place), line));
    rows.end(lines.length);
    setHidden(byId("tree"), lines.length === 0);
    setHidden(byId("tree-empty"), lines.length > 0);
    const held = state.tree.filter((node) => node.held).length;
    setText(byId("tree-line"), lines.length ? `${many(state.tree.length, "page")}, ${number(held)} of them held` : "");
  };
}

/** The tree as lines {depth, pages, holders, text, news}, each under the one it grows from.
 * The news is the text without what the lines beside it begin with, too. */
function linesOf({ tree, requests }) {
  const holders = new Map();
  for (const { request, pages } of requests) {
    for (const page of pages) holders.set(page, [...(holders.get(page) ?? []), request]);
  }
  const children = new Map();
  for (const node of tree) children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  const lines = [];
  const top = children.get(0) ?? [];
  const known = new Map([[0, commonLength(top.map((node) => node.text))]]); // page → letters that all below begin with
  const stack = top.map((node) => [node, 0]).reverse();
  while (stack.length) {
    const [first, depth] = stack.pop();
    const [chain, below] = follow(first, children, holders);
    const text = chain.map((node) => node.text).join("");
    lines.push({ depth, pages: chain.map((node) => node.page), holders: holders.get(first.page) ?? [],
      text: text.slice(0, LETTERS), news: newsOf(text, known.get(first.parent)) });
    known.set(chain.at(-1).page, commonLength(below.map((node) => node.text)));
    for (const node of [...below].reverse()) stack.push([node, depth + 1]);
  }
  return lines;
}

function newsOf(text, known) {
  return (known ? "…" : "") + text.slice(known, known + LETTERS).replace(/\s+/g, " ");
}

/** How many letters all texts begin with, where there are several; none of them is used up. */
function commonLength(texts) {
  if (texts.length < 2) return 0;
  const [first] = texts;
  const most = Math.min(...texts.map((text) => text.length)) - 1;
  let length = 0;
  while (length < most && texts.every((text) => text[length] === first[length])) length++;
  while (length > 0 && !/\s/.test(first[length - 1])) length--; // no half words
  return length;
}

/** From a node on as far as there is only one way and the same requests hold it. */
function follow(first, children, holders) {
  const key = (node) => (holders.get(node.page) ?? []).join();
  const chain = [first];
  for (;;) {
    const below = children.get(chain.at(-1).page) ?? [];
    if (below.length !== 1 || key(below[0]) !== key(first)) return [chain, below];
    chain.push(below[0]);
  }
}

function drawRow(row, line) {
  const chosen = chosenRequest();
  const mine = line.holders.includes(chosen);
  setClass(row.node, `node${mine ? " mine" : ""}${line.holders.length ? "" : " unheld"}`);
  setStyle(row.node, "--depth", Math.min(line.depth, DEEPEST));
  setText(row.level, `Level ${line.depth + 1}: `);
  setText(row.pages, pagesText(line.pages));
  setText(row.text, line.news);
  setAttribute(row.text, "title", line.text);
  const shown = line.holders.slice(0, MOST_TAGS);
  shown.forEach((request, place) => {
    const { node } = row.tagRows.row(place);
    setClass(node, `tag ${lookOf(request)}`);
    setAttribute(node, "data-request", request);
    setText(node, String(request));
  });
  row.tagRows.end(shown.length);
  const more = line.holders.length - shown.length;
  setAttribute(row.tags, "data-more", more > 0 ? `+${more}` : "");
  setAttribute(row.tags, "data-none", line.holders.length ? "" : "cached");
}

function pagesText(pages) {
  return pages.length === 1 ? `page ${pages[0]}` : `${pages.length} pages, ${pages[0]} to ${pages.at(-1)}`;
}
