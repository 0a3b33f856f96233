"""A sampling state that ends a test when a loop over it goes on for ever."""

from __future__ import annotations

from typing import Any

from .bankers import held_by

MOST_PLANS = 1000
MOST_MASKS = 10 * MOST_PLANS
MOST_EMPTY_PLANS = 20  # in a row


def bounded_state(lab: Any, decode_state: Any, limit: int) -> Any:
    """The lab's SamplingState, all slots idle; `issue_lens` and `completed_mask` count how often they are called."""

    class BoundedState(lab.ragged.sampling_state.SamplingState):
        def __init__(self) -> None:
            super().__init__(decode_state, limit)
            self.plans = self.empty_plans = self.masks = 0
            self.seen: list[Any] = []  # requests, in the order in which `names_in` met them

        def issue_lens(self, capacity: int) -> list[int]:
            __tracebackhide__ = True
            lens = super().issue_lens(capacity)
            self.plans += 1
            self.empty_plans = 0 if lens is None or any(lens) else self.empty_plans + 1
            assert self.plans < MOST_PLANS, f"{MOST_PLANS} plans were made, and there is no end to it"
            assert self.empty_plans < MOST_EMPTY_PLANS, (
                f"{MOST_EMPTY_PLANS} plans in a row, and {why_empty(self)}"
            )
            return lens

        def completed_mask(self) -> list[bool]:
            __tracebackhide__ = True
            self.masks += 1
            assert self.masks < MOST_MASKS, (
                f"`completed_mask` was called {MOST_MASKS} times, and there is no end to it"
            )
            return super().completed_mask()

    return BoundedState()


def names_in(state: Any) -> list[str]:
    """Who is in each slot: A is the first request that was ever seen in this state, and "idle" is nobody."""
    for request in state.requests:
        if request is not None and not any(request is each for each in state.seen):
            state.seen.append(request)
    letters = {id(request): chr(ord("A") + number) for number, request in enumerate(state.seen)}
    return ["idle" if each is None else letters[id(each)] for each in state.requests]


def why_empty(state: Any) -> str:
    """What to say when nobody issues anything."""
    told = "nobody issues a token, so nothing will ever change: "
    busy = [slot for slot, each in enumerate(state.requests) if each is not None]
    done = [slot for slot in busy if state.requests[slot].finished(state.max_positions)]
    if not busy:
        return told + "all slots are idle"
    if done == busy:
        return told + f"the requests in slots {done} are complete, and were not released"
    kept = f"; those in slots {done} are, and were not released" if done else ""
    return told + (
        f"slots {sorted(set(busy) - set(done))} have requests that are not complete{kept} (pages held "
        f"{held_by(state)}, {len(state.pages.available_page_indices)} free)"
    )
