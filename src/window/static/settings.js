// The settings of the next question: system prompt and sampling.

import { byId, setText } from "./dom.js";

const NUMBERS = { temperature: "temperature", top_p: "top-p", max_tokens: "max-tokens", seed: "seed" };
const CHECKED = Object.values(NUMBERS);

export function watchSettings() {
  const line = () => {
    const { temperature, max_tokens: most, seed } = sampling();
    const parts = [`temperature ${temperature}`, `${most} tokens at most`];
    if (seed !== undefined) parts.push(`seed ${seed}`);
    setText(byId("settings-line"), parts.join(", "));
  };
  byId("settings").addEventListener("input", line);
  line();
}

/** The fields of a request; a field that is left empty isn't sent. */
export function sampling() {
  const fields = {};
  for (const [name, id] of Object.entries(NUMBERS)) {
    const { value } = byId(id);
    if (value !== "") fields[name] = Number(value);
  }
  return fields;
}

export function systemPrompt() {
  return byId("system").value.trim();
}

/** Whether every number is in its range; the browser says which one isn't. */
export function settingsFit() {
  const wrong = CHECKED.map(byId).find((field) => !field.checkValidity());
  if (!wrong) return true;
  byId("settings").open = true;
  wrong.reportValidity();
  return false;
}
