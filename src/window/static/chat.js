// The chat: questions to /v1/chat/completions, answers as they come.

import { documentTexts, watchDocuments } from "./documents.js";
import { byId, setHidden, setText } from "./dom.js";
import { isName, nameOf } from "./names.js";
import { addAnswer, addQuestion, clearMessages, usageLine } from "./messages.js";
import { sampling, settingsFit, systemPrompt, watchSettings } from "./settings.js";
import { events, post, useKey } from "./stream.js";

let model = "";
let history = []; // {role, content} of the questions and answers so far
let running = null; // the AbortController of the answer that comes
let newest = 0; // the highest number of a request that was seen
let unlinked = []; // {answer, name, after}: answers whose requests weren't seen yet

function say(error) {
  setText(byId("chat-error"), error);
  setHidden(byId("chat-error"), !error);
}

/** @param onKey called when another API key was given */
export function watchChat(onKey) {
  watchSettings();
  watchDocuments(say);
  byId("composer").addEventListener("submit", submit);
  byId("stop").addEventListener("click", () => running?.abort());
  byId("new-chat").addEventListener("click", startAnew);
  byId("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) byId("composer").requestSubmit();
  });
  byId("key").addEventListener("change", () => {
    useKey(byId("key").value);
    onKey();
  });
}

export function setUpChat(setup) {
  model = setup.model;
  setHidden(byId("document-area"), !setup.documents);
  setHidden(byId("key-row"), !setup.needs_key);
}

/** Link each answer to its request: the first one of that name that came after the question was sent. */
export function linkAnswers(requests) {
  unlinked = unlinked.filter(({ answer, name, after }) => {
    const found = requests.find((each) => each.request > after && isName(nameOf(each), name));
    if (found) answer.linkTo(found.request);
    return !found;
  });
  newest = Math.max(newest, ...requests.map((each) => each.request));
}

function startAnew() {
  running?.abort();
  history = [];
  unlinked = [];
  clearMessages();
  say("");
  byId("question").focus();
}

function submit(event) {
  event.preventDefault();
  const text = byId("question").value.trim();
  if (running || !text || !settingsFit()) return;
  byId("question").value = "";
  say("");
  ask(text);
}

function bodyOf(text) {
  const system = systemPrompt();
  const first = system ? [{ role: "system", content: system }] : [];
  const body = { model, messages: [...first, ...history, { role: "user", content: text }], ...sampling(), stream: true };
  const documents = documentTexts();
  if (documents.length) body.documents = documents;
  return { ...body, stream_options: { include_usage: true } };
}

async function ask(text) {
  const controller = new AbortController();
  const body = bodyOf(text);
  const mine = history;
  setRunning(controller);
  const question = addQuestion(text, body.documents?.length ?? 0);
  const answer = addAnswer();
  unlinked.push({ answer, name: text, after: newest });
  setText(byId("chat-news"), "The model answers.");
  const found = { text: "", usage: null, reason: "", start: performance.now() };
  try {
    await read(await post("/v1/chat/completions", body, controller.signal), found, answer);
    end(found, answer);
  } catch (error) {
    if (controller.signal.aborted) found.reason = "stopped";
    if (found.text || controller.signal.aborted) end(found, answer, controller.signal.aborted ? "" : error.message);
    else undo(question, answer, text, error);
  } finally {
    if (running === controller) setRunning(null);
  }
  if (found.text) mine.push({ role: "user", content: text }, { role: "assistant", content: found.text });
}

async function read(response, found, answer) {
  for await (const { data } of events(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    const [choice] = chunk.choices;
    const more = choice?.delta?.content ?? "";
    found.text += more;
    if (more) answer.grow(more);
    found.reason = choice?.finish_reason ?? found.reason;
    found.usage = chunk.usage ?? found.usage;
  }
  if (!found.reason) throw new Error("The connection broke off.");
}

function end(found, answer, error = "") {
  const line = usageLine(found.usage, found.reason, (performance.now() - found.start) / 1000);
  answer.end([line, error].filter(Boolean).join(" · "), Boolean(error));
  setText(byId("chat-news"), found.reason === "stopped" ? "Stopped." : `Answer: ${found.text} ${error}`);
}

/** Nothing came: the question goes back to where it was written, with the reason. */
function undo(question, answer, text, error) {
  question.remove();
  answer.node.remove();
  if (!byId("messages").children.length) clearMessages();
  if (!byId("question").value) byId("question").value = text;
  setText(byId("chat-news"), "");
  say(error.message);
}

function setRunning(controller) {
  const hadFocus = document.activeElement === byId("stop") || document.activeElement === byId("send");
  running = controller;
  setHidden(byId("send"), Boolean(controller));
  setHidden(byId("stop"), !controller);
  if (hadFocus) (controller ? byId("stop") : byId("question")).focus();
}
