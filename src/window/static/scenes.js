// The examples: a button for each, which starts its requests.

import { byId, make, setHidden, setText } from "./dom.js";
import { post } from "./stream.js";

const RUNS = 409;

export function scenesPanel(scenes) {
  setHidden(byId("scenes-panel"), scenes.length === 0);
  byId("scenes").replaceChildren(...scenes.map(makeScene));
}

function makeScene(scene) {
  const button = make("button", { type: "button", "data-scene": scene.name, title: scene.about, text: scene.title });
  const say = () => setText(byId("scene-news"), scene.about);
  button.addEventListener("focus", say);
  button.addEventListener("pointerenter", say);
  button.addEventListener("click", (event) => {
    if (event.detail > 0) button.blur(); // after a click, the space bar is a shortcut again
    start(scene);
  });
  return make("li", {}, button);
}

async function start(scene) {
  try {
    await post("/window/scene", { name: scene.name });
    setText(byId("scene-news"), `Started. ${scene.about}`);
  } catch (error) {
    setText(byId("scene-news"), error.status === RUNS ? "An example still runs: wait until it has ended." : error.message);
  }
}
