// Pause, one step, slow motion, play: the buttons, and the keys that do the same.

import { byId, number, setAttribute, setText } from "./dom.js";
import { post } from "./stream.js";

const WORDS = { play: "Running", slow: "Slow motion", pause: "Paused" };
const TYPING = "input:not([type=checkbox]), textarea, select, [contenteditable]";
const PRESSED_BY_SPACE = "button, input, summary, a, [role=listbox], [role=slider]";

let mode = "";
let step = 0;

/** The buttons and keys; call what it returns with each state. */
export function controlsPanel() {
  for (const button of document.querySelectorAll(".controls button")) {
    button.addEventListener("click", (event) => {
      if (event.detail > 0) button.blur(); // after a click, the space bar is a shortcut again
      send(button.dataset.mode);
    });
  }
  document.addEventListener("keydown", onKey);
  return (state) => {
    step = state.step;
    show(state.mode);
  };
}

/** The mode is said once, as it changes; while the engine stands still, the step is said, too. */
function show(now) {
  mode = now === "step" ? "pause" : now;
  for (const button of document.querySelectorAll(".controls button[aria-pressed]")) {
    setAttribute(button, "aria-pressed", button.dataset.mode === mode);
  }
  document.body.dataset.mode = mode;
  setText(byId("mode-news"), mode === "pause" ? `Paused after step ${number(step)}` : WORDS[mode] ?? "");
}

async function send(wanted) {
  try {
    const response = await post("/window/control", { mode: wanted });
    show((await response.json()).mode);
  } catch (error) {
    setText(byId("mode-news"), error.message);
  }
}

function onKey(event) {
  if (!byId("shortcuts").checked || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest?.(TYPING) || (event.key === " " && event.target.closest?.(PRESSED_BY_SPACE))) return;
  const wanted = { " ": mode === "pause" ? "play" : "pause", ".": "step", s: "slow" }[event.key];
  if (!wanted) return;
  event.preventDefault();
  send(wanted);
}
