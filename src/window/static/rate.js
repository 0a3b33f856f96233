// The queue in numbers, and the output tokens of the last minute as a line.

import { byId, make, makeSvg, number, setAttribute, setText } from "./dom.js";

const WIDTH = 300;
const HEIGHT = 56;
const COUNTS = [
  ["waiting", "Waiting", ""],
  ["running", "Running", "/"],
  ["finished", "Finished", ""],
  ["cancelled", "Cancelled", ""],
  ["failed", "Failed", ""],
  ["preempted", "Preempted", ""],
  ["evicted", "Pages evicted", ""],
  ["reused", "Tokens reused", ""],
];

/** The panel; call what it returns with each state. */
export function ratePanel(seats) {
  const values = COUNTS.map(([, title, of]) => {
    const value = make("dd");
    return { value, of, pair: make("div", {}, make("dt", { text: title }), value) };
  });
  byId("counts").replaceChildren(...values.map((each) => each.pair));
  const area = makeSvg("polygon", { class: "area" });
  const line = makeSvg("polyline", { class: "curve" });
  const drawing = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 4}`, preserveAspectRatio: "none", role: "img" }, area, line);
  const axis = make("p", { className: "caption" }, make("span", { text: "a minute ago" }), make("span", { text: "now" }));
  byId("rate").replaceChildren(drawing, axis);
  return (state) => {
    COUNTS.forEach(([name], place) => {
      const { value, of } = values[place];
      const count = number(state.counts[name] ?? 0);
      setText(value, of && seats ? `${count} ${of} ${number(seats)}` : count);
    });
    drawRate({ area, line, drawing }, state.rate);
  };
}

function drawRate({ area, line, drawing }, rate) {
  const most = Math.max(10, ...rate);
  const across = WIDTH / Math.max(rate.length - 1, 1);
  const points = rate.map((count, place) => `${(place * across).toFixed(1)},${(HEIGHT + 2 - (HEIGHT * count) / most).toFixed(1)}`);
  setAttribute(line, "points", points.join(" "));
  setAttribute(area, "points", `0,${HEIGHT + 2} ${points.join(" ")} ${WIDTH},${HEIGHT + 2}`);
  const recent = rate.slice(-4, -1); // the newest second isn't over yet
  const now = recent.length ? Math.round(recent.reduce((one, other) => one + other, 0) / recent.length) : 0;
  setText(byId("rate-now"), number(now));
  setText(byId("rate-most"), `at most ${number(Math.max(0, ...rate))}`);
  setAttribute(drawing, "aria-label", `Output tokens a second: ${now} now, at most ${Math.max(0, ...rate)} in the last minute`);
}
