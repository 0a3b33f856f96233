// The window: reads how the engine is set up, then draws each of its states, at most once per frame.

import { batchPanel } from "./batch.js";
import { linkAnswers, setUpChat, watchChat } from "./chat.js";
import { choose, chosenRequest, onChoice } from "./choice.js";
import { controlsPanel } from "./controls.js";
import { detailsPanel } from "./details.js";
import { byId, many, setAttribute, setHidden, setText } from "./dom.js";
import { follow } from "./events.js";
import { keepLooks } from "./looks.js";
import { pagesPanel, watchPages } from "./pages.js";
import { ratePanel } from "./rate.js";
import { requestsPanel } from "./requests.js";
import { drawRuns } from "./runs.js";
import { scenesPanel } from "./scenes.js";
import { getJson, Refused } from "./stream.js";
import { treePanel } from "./tree.js";

const LINKS = { on: "Connected", off: "The server doesn't answer; trying again…" };

const batch = batchPanel();
const requests = requestsPanel();
const details = detailsPanel();
const tree = treePanel();
const controls = controlsPanel();
let panels = [];
let newest = null;
let planned = false;

async function begin() {
  const setup = await getJson("/window/setup");
  setText(byId("stage"), setup.stage);
  setText(byId("model"), setup.model);
  setText(byId("sizes"), `${many(setup.pages, "page")} of ${many(setup.page_size, "token")}`);
  setText(byId("view-left"), setup.chat ? "Chat" : "Answers");
  setHidden(byId("chat"), !setup.chat);
  setHidden(byId("runs"), setup.chat);
  setUpChat(setup);
  scenesPanel(setup.scenes);
  const runs = setup.chat ? ({ requests: each }) => linkAnswers(each) : drawRuns;
  panels = [controls, batch, requests, pagesPanel(setup.pages), tree, details, ratePanel(setup.seats), runs];
}

function draw() {
  planned = false;
  if (!newest) return;
  keepLooks(newest.requests);
  if (!newest.requests.some((each) => each.request === chosenRequest())) choose(null);
  for (const panel of panels) panel(newest);
}

function plan() {
  if (!planned) requestAnimationFrame(draw);
  planned = true;
}

function onLink(state, error) {
  setText(byId("link"), error instanceof Refused ? `${error.message} Trying again…` : LINKS[state]);
  setAttribute(byId("link"), "data-state", state);
}

function watchViews() {
  for (const button of document.querySelectorAll(".views button")) {
    button.addEventListener("click", () => {
      document.body.dataset.view = button.dataset.view;
      for (const each of document.querySelectorAll(".views button")) setAttribute(each, "aria-pressed", each === button);
    });
  }
}

watchViews();
watchPages();
onChoice(plan);
const connectAnew = follow({
  onLink,
  begin,
  onState(state) {
    newest = state;
    plan();
  },
});
watchChat(connectAnew);
