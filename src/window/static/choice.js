// The request that is chosen: the list, the pages, the tree and the details all show it.

const listeners = [];
let chosen = null;

export const chosenRequest = () => chosen;

export const onChoice = (listener) => listeners.push(listener);

export function choose(request) {
  if (request === chosen) return;
  chosen = request;
  for (const each of listeners) each();
}
