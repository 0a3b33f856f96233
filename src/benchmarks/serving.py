"""Week 3's other ladder: requests that come when they like, answered by each of the ways to batch."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ladder import TOKENS_PER_SECOND, Bar, Ladder, Quantity
from benchmarks.rounds import Case, Values
from benchmarks.week_2 import GetModel
from programs.engine import Timing
from programs.ragged import state_for

if TYPE_CHECKING:
    from torch import Tensor

    from tiny_llm.batch import Request
    from tiny_llm.model import Transformer

REQUESTS = 24
SLOTS = 8
CAPACITY = 128  # tokens of a prompt that a step computes at most, and of all together in a ragged step
SHORTEST, LONGEST = 16, 320  # tokens of a prompt
MEAN_PAUSE = 0.25  # seconds from one request to the next, on average
TOKENS = 48  # what the longest answer has; the others have a quarter of it, or more

MEAN_FIRST = Quantity("mean_first", "first, s", places=2)  # the wait for a request's first token
FIRST_95 = Quantity("first_95", "95 %, s", places=2)  # 95 of 100 requests have it by then
PADDING = Quantity("padding", "vain, %", factor=100, places=0)  # rows that the model was run on for nobody

LADDERS = (
    Ladder(
        "serving",
        f"{REQUESTS} requests, one every {MEAN_PAUSE:g} s on average, {SLOTS} slots",
        (TOKENS_PER_SECOND, MEAN_FIRST, FIRST_95, PADDING),
    ),
)

BARS = (
    Bar("ragged: more tokens per second than continuous", "ragged", "continuous", TOKENS_PER_SECOND, 1.0),
    Bar("ragged: more tokens per second than static", "ragged", "static", TOKENS_PER_SECOND, 1.0),
    Bar("and an earlier first token than continuous", "continuous", "ragged", MEAN_FIRST, 1.0),
    Bar("and an earlier first token than static", "static", "ragged", MEAN_FIRST, 1.0),
)


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """The three ways on the same requests.

    Args:
        model: called when a case runs.
        text: token ids to cut the prompts from.
    """
    for name, label, serve in (
        ("static", "static batches (2.6)", _static),
        ("continuous", "continuous batching (2.7)", _continuous),
        ("ragged", "ragged batching (3.6)", _ragged),
    ):
        yield Case(name, "serving", label, partial(_run, serve, model, text), TOKENS)


@dataclass
class Visit:
    """A request and when it comes, in seconds from the start."""

    request: Request
    at: float
    timing: Timing

    def choose(self, logits: Tensor, token_ids: Sequence[int]) -> int:
        """The greedy choice, which also notes when the token came."""
        from tiny_llm.generate import greedy

        self.timing.stamp()
        return greedy(logits)


class Door:
    """Lets requests in when their time has come."""

    def __init__(self, visits: Sequence[Visit]) -> None:
        self._coming = deque(visits)
        self._started = time.perf_counter()
        for visit in visits:
            visit.timing.started = self._started + visit.at

    def __bool__(self) -> bool:
        """Whether somebody has still to come."""
        return bool(self._coming)

    def come_in(self, wait: bool) -> list[Visit]:
        """Those whose time has come; if nobody's has and there is nothing else to do, wait for the next one."""
        if wait and self._coming:
            time.sleep(max(0.0, self._started + self._coming[0].at - time.perf_counter()))
        now = time.perf_counter() - self._started
        came = []
        while self._coming and self._coming[0].at <= now:
            came.append(self._coming.popleft())
        return came


Rows = tuple[int, int]
"""How many rows the model was run on, and how many of them belonged to nobody."""

Serve = Callable[["Transformer", Door, Sequence[Visit]], Rows]


def _run(serve: Serve, model: GetModel, text: Sequence[int], tokens: int) -> Values:
    from tiny_llm.ragged.metrics import percentile

    visits = list(_visits(text, tokens))
    the_model = model("float32")
    rows, in_vain = serve(the_model, Door(visits), visits)
    timings = [visit.timing for visit in visits]
    firsts = [timing.first_token for timing in timings]
    count = sum(len(timing.arrivals) for timing in timings)
    ended = max(timing.arrivals[-1] for timing in timings)
    return {
        "tokens_per_second": count / (ended - min(timing.started for timing in timings)),
        "mean_first": sum(firsts) / len(firsts),
        "first_95": percentile(firsts, 95) or 0.0,
        "padding": in_vain / rows,
    }


def _visits(text: Sequence[int], tokens: int) -> Iterator[Visit]:
    """The same requests each time: most prompts are short, answers are of any length, pauses are random."""
    from tiny_llm.batch import Request

    dice, at = random.Random(0), 0.0
    for _ in range(REQUESTS):
        length = round(SHORTEST * (LONGEST / SHORTEST) ** dice.random())
        start = dice.randrange(len(text) - length)
        request = Request(text[start : start + length], max(1, dice.randint(tokens // 4, tokens)))
        visit = Visit(request, at, Timing())
        request.sample = visit.choose
        yield visit
        at += dice.expovariate(1 / MEAN_PAUSE)


def _static(model: Transformer, door: Door, visits: Sequence[Visit]) -> Rows:
    """Those who have come, as many as there are slots, are answered together; others wait until all have ended."""
    from tiny_llm.batch import advance, decode_slots
    from tiny_llm.static_batch import Batch

    waiting: deque[Visit] = deque()
    rows = in_vain = 0
    while door or waiting:
        waiting.extend(door.come_in(wait=not waiting))
        together = [waiting.popleft().request for _ in range(min(SLOTS, len(waiting)))]
        slots: list[Request | None] = [None] * len(together)
        batch = Batch(model, len(together))
        for request in together:
            advance(batch, slots, request, None)
            rows += len(request.prompt_ids)
        while any(slots):
            rows, in_vain = rows + len(slots), in_vain + slots.count(None)
            decode_slots(batch, slots)
    return rows, in_vain


def _continuous(model: Transformer, door: Door, visits: Sequence[Visit]) -> Rows:
    """Day 2.7's loop, with requests that come later than its start."""
    from tiny_llm.batch import advance, decode_slots
    from tiny_llm.static_batch import Batch

    batch, waiting = Batch(model, SLOTS), deque[Visit]()
    slots: list[Request | None] = [None] * SLOTS
    prefilling: Request | None = None
    rows = in_vain = 0
    while door or waiting or prefilling or any(slots):
        waiting.extend(door.come_in(wait=not (waiting or prefilling or any(slots))))
        if prefilling is None and waiting:
            prefilling = waiting.popleft().request
        if prefilling is not None:
            current, before = prefilling, prefilling.computed
            prefilling = advance(batch, slots, current, CAPACITY)
            rows += current.computed - before
        if any(slots):
            rows, in_vain = rows + SLOTS, in_vain + slots.count(None)
            decode_slots(batch, slots)
    return rows, in_vain


def _ragged(model: Transformer, door: Door, visits: Sequence[Visit]) -> Rows:
    """Day 3.6's steps; whoever has come joins the next one."""
    from tiny_llm.ragged.batch import mixed_step

    state = state_for(model, [visit.request for visit in visits], SLOTS)
    waiting: deque[Visit] = deque()
    rows = 0
    while door or waiting or state.line:
        waiting.extend(door.come_in(wait=not (waiting or state.line)))
        while waiting and state.idle:
            state.push(waiting.popleft().request)
        rows += sum(mixed_step(model, state, CAPACITY))
        state.release(state.completed_mask())
    return rows, 0
