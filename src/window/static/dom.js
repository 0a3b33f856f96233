// Small helpers for the document. Text goes into it through textContent only, so it can never become markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** A new element with properties (class, text, attributes) and children. */
export function make(tag, { className = "", text, ...attributes } = {}, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** A new SVG element with attributes. */
export function makeSvg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// What follows changes the document only where it differs: the browser then has nothing to draw anew.

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setClass(node, className) {
  if (node.className !== className) node.className = className;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
}

export function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

/** A custom property of the style, such as a share of a width. */
export function setStyle(node, name, value) {
  if (node.style.getPropertyValue(name) !== String(value)) node.style.setProperty(name, value);
}

/** Make a node's children those of the list, in its order; a node that stays where it is isn't touched. */
export function setChildren(parent, nodes) {
  nodes.forEach((node, place) => {
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
  });
  while (parent.children.length > nodes.length) parent.lastElementChild.remove();
}

/** A pool of children that are used again: `row(place)` gives the one at a place, `end(count)` removes the rest. */
export function rowsOf(parent, makeRow) {
  const rows = [];
  return {
    row(place) {
      if (place === rows.length) {
        rows.push(makeRow());
        parent.append(rows[place].node);
      }
      return rows[place];
    },
    end(count) {
      for (const { node } of rows.splice(count)) node.remove();
    },
  };
}

const NUMBERS = new Intl.NumberFormat("en");

/** 12345 as 12,345. */
export const number = (value) => NUMBERS.format(value);

/** "1 page", "2 pages". */
export const many = (count, one, several = `${one}s`) => `${number(count)} ${count === 1 ? one : several}`;

export const seconds = (value) => `${value < 10 ? value.toFixed(2) : Math.round(value)} s`;
