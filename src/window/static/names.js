// The words for a request, the same everywhere on the page.

const ANSWER_ID = /^(?:chat)?cmpl-[\w-]+[\s:·]*/;

/** What to call a request: its label, without the id of the answer that may stand before it. */
export function nameOf(request) {
  return request.label.replace(ANSWER_ID, "") || request.label || `request ${request.request}`;
}

/** Whether a name, which may be cut off, is that of a text. */
export function isName(name, text) {
  const line = text.split(/\s+/).join(" ");
  return name.endsWith("…") ? line.startsWith(name.slice(0, -1)) : line === name;
}

/** How many tokens of its prompt are computed: `computed` counts its output, too. */
export const promptComputed = ({ computed, prompt }) => Math.min(computed, prompt);

export const ENDED = new Set(["finished", "cancelled", "failed"]);

const ORDER = { running: 0, preempted: 1, waiting: 2, finished: 3, cancelled: 3, failed: 3 };

/** Those that run first, then those that wait; those that ended come last, the newest of them first. */
export function inOrder(requests) {
  return [...requests].sort((one, other) => {
    const rank = ORDER[one.state] - ORDER[other.state];
    const age = one.request - other.request;
    return rank || (ENDED.has(one.state) ? -age : age);
  });
}
