// How a request looks: one of 8 hues with one of 8 patterns, and its number as a tag. A request keeps its look.

import { ENDED } from "./names.js";

const HUES = 8;
const PATTERNS = 8;

const places = new Map(); // request → place

/** Give new requests a look. One that has ended keeps its own, too, until another one needs it. */
export function keepLooks(requests) {
  const there = new Set(requests.map((each) => each.request));
  for (const request of places.keys()) if (!there.has(request)) places.delete(request);
  const going = requests.filter((each) => !ENDED.has(each.state));
  const taken = new Set(places.values());
  const busy = new Set(going.map((each) => places.get(each.request)));
  for (const { request } of requests) {
    if (places.has(request)) continue;
    const place = firstWithout(taken, HUES * PATTERNS) ?? firstWithout(busy, Infinity);
    places.set(request, place);
    taken.add(place);
    busy.add(place);
  }
}

function firstWithout(taken, end) {
  for (let place = 0; place < end; place++) if (!taken.has(place)) return place;
  return undefined;
}

/** Neighbours differ in hue and in pattern; all 64 are different. */
export function lookOf(request) {
  const place = places.get(request);
  if (place === undefined) return "hue-none";
  const row = Math.floor(place / HUES);
  return `hue-${place % HUES} pat-${(place + row) % PATTERNS}`;
}
