// This step's ragged batch: a bar as long as the token budget, a part for each request, and the steps before it.

import { choose, chosenRequest } from "./choice.js";
import { byId, make, many, number, rowsOf, setAttribute, setClass, setStyle, setText } from "./dom.js";
import { lookOf } from "./looks.js";

const KEPT = 60;

const steps = []; // {step, prompt, decode} of the steps that were seen

function makeChip() {
  const tag = make("b");
  const swatch = make("span", { className: "swatch" });
  const about = make("span", { className: "hint" });
  const button = make("button", { type: "button", className: "chip" }, swatch, tag, about);
  const row = { node: make("li", {}, button), button, swatch, tag, about, request: 0 };
  button.addEventListener("click", () => choose(row.request));
  return row;
}

function makeColumn() {
  const prompt = make("i", { className: "prompt" });
  const decode = make("i", { className: "decode" });
  return { node: make("span", {}, prompt, decode), prompt, decode };
}

/** The panel; call what it returns with each state. */
export function batchPanel() {
  const bar = byId("bar");
  const parts = rowsOf(bar, () => ({ node: make("span", { className: "part" }) }));
  const rest = make("span", { className: "budget" });
  bar.append(rest);
  const prompts = rowsOf(byId("prompt-parts"), makeChip);
  const decodes = rowsOf(byId("decode-parts"), makeChip);
  const columns = rowsOf(byId("history"), makeColumn);

  return (state) => {
    const batch = state.batch ?? [];
    const isDecode = (each) => each.decode;
    const prompt = sum(batch.filter((each) => !each.decode));
    const decode = sum(batch.filter(isDecode));
    drawLine(state, prompt, decode);
    drawBar(bar, rest, parts, batch, state.budget || prompt + decode);
    drawChips(prompts, batch.filter((each) => !each.decode), aboutPrompt);
    drawChips(decodes, batch.filter(isDecode), () => "");
    remember(state.step, prompt, decode);
    drawSteps(columns, state.budget);
  };
}

const sum = (batch) => batch.reduce((total, each) => total + each.tokens, 0);

function drawLine(state, prompt, decode) {
  const total = prompt + decode;
  const budget = state.budget ? ` of the budget of ${number(state.budget)}` : "";
  const text = total
    ? `Step ${number(state.step)}: ${many(total, "token")}${budget}; ${number(prompt)} of prompts, ${number(decode)} of decodes`
    : state.step ? `Step ${number(state.step)}: nothing in it` : "No step yet";
  setText(byId("step-line"), text);
  setAttribute(byId("bar"), "aria-label", text);
  setText(byId("budget-text"), state.budget ? `budget ${number(state.budget)}` : "");
}

function drawBar(bar, rest, parts, batch, budget) {
  const scale = Math.max(budget, sum(batch), 1);
  const ordered = [...batch].sort((one, other) => one.decode - other.decode);
  ordered.forEach((each, place) => {
    const { node } = parts.row(place);
    const mine = each.request === chosenRequest() ? " mine" : "";
    setClass(node, `part ${each.decode ? "decode" : "prompt"} ${lookOf(each.request)}${mine}`);
    setStyle(node, "--share", (each.tokens / scale).toFixed(5));
    node.onclick = () => choose(each.request);
    setAttribute(node, "title", `Request ${each.request}: ${many(each.tokens, "token")}`);
  });
  parts.end(ordered.length);
  if (bar.lastElementChild !== rest) bar.append(rest);
  setStyle(rest, "--at", (budget / scale).toFixed(5));
}

function aboutPrompt(each) {
  const last = each.start + each.tokens;
  const found = each.found ? `, ${number(each.found)} found in the tree` : "";
  return `${number(each.start)} to ${number(last)}${found}`;
}

function drawChips(chips, batch, about) {
  batch.forEach((each, place) => {
    const chip = chips.row(place);
    chip.request = each.request;
    const mine = each.request === chosenRequest();
    setClass(chip.swatch, `swatch ${lookOf(each.request)}`);
    setAttribute(chip.button, "aria-pressed", mine);
    setAttribute(chip.button, "aria-label", `Request ${each.request} ${about(each)}`.trim());
    setText(chip.tag, String(each.request));
    setText(chip.about, about(each));
  });
  chips.end(batch.length);
}

function remember(step, prompt, decode) {
  const last = steps.at(-1);
  if (last && step < last.step) steps.length = 0; // a new run
  if (last?.step === step || !step) return;
  steps.push({ step, prompt, decode });
  if (steps.length > KEPT) steps.shift();
}

function drawSteps(columns, budget) {
  const most = Math.max(budget || 1, ...steps.map((each) => each.prompt + each.decode));
  steps.forEach((each, place) => {
    const column = columns.row(place);
    setStyle(column.prompt, "--share", (each.prompt / most).toFixed(4));
    setStyle(column.decode, "--share", (each.decode / most).toFixed(4));
  });
  columns.end(steps.length);
}
