// The documents that are sent along with a question: text or Markdown files, by button or by drag and drop.

import { byId, make, number, setChildren } from "./dom.js";

const MOST = 16;
const LARGEST = 64 * 1024; // bytes
const NAMES = /\.(txt|md|markdown)$/i;

const documents = []; // {name, text}
let report = () => {};

export const documentTexts = () => documents.map((each) => each.text);

/** @param onError called with a sentence where a file isn't taken, or "" */
export function watchDocuments(onError) {
  report = onError;
  byId("add-files").addEventListener("click", () => byId("files").click());
  byId("files").addEventListener("change", async (event) => {
    await addFiles([...event.target.files]);
    event.target.value = ""; // so that the same file can be chosen again
  });
  watchDrops(byId("chat"));
}

function watchDrops(area) {
  // A file that is dropped beside the area would else replace the page.
  for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
  const over = (event) => area.classList.toggle("dropping", event.type === "dragover");
  for (const name of ["dragover", "dragleave", "drop"]) area.addEventListener(name, over);
  area.addEventListener("drop", (event) => addFiles([...event.dataTransfer.files]));
}

async function addFiles(files) {
  const refused = [];
  for (const file of files) {
    const why = await add(file).catch((error) => error.message);
    if (why) refused.push(`${file.name}: ${why}.`);
  }
  report(refused.join(" "));
  draw();
}

/** Why the file isn't taken, or "". */
async function add(file) {
  if (documents.length >= MOST) return `there are ${MOST} documents already`;
  if (!NAMES.test(file.name) && !file.type.startsWith("text/")) return "this is no text or Markdown file";
  if (file.size > LARGEST) return `it is larger than ${LARGEST / 1024} KiB`;
  const text = decode(await file.arrayBuffer());
  if (text === null) return "this is no UTF-8 text";
  if (!text.trim()) return "it is empty";
  documents.push({ name: file.name, text });
  return "";
}

function decode(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

function draw() {
  setChildren(byId("documents"), documents.map(makeRow));
}

function makeRow(each) {
  const remove = make("button", { type: "button", className: "quiet", "aria-label": `Remove ${each.name}`, text: "×" });
  remove.addEventListener("click", () => {
    documents.splice(documents.indexOf(each), 1);
    draw();
    byId("add-files").focus();
  });
  const size = make("span", { className: "hint", text: `${number(each.text.length)} characters` });
  return make("li", {}, make("span", { className: "file", text: each.name }), size, remove);
}
