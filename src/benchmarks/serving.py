"""Week 3's other ladder: requests that come when they like, answered by each of the ways to batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.arrivals import Door, Engine, Rows, Server, Visit, serve
from benchmarks.ladder import MEAN_FIRST, TOKENS_PER_SECOND, Bar, Ladder, Quantity
from benchmarks.rounds import Case, Values
from benchmarks.week_2 import GetModel
from programs.cores import ragged_batch_for
from programs.loaded import Timing

if TYPE_CHECKING:
    from tiny_llm.batch import Prefill
    from tiny_llm.model import Transformer
    from tiny_llm.request import Request

REQUESTS = 24
SEATS = 8
BUDGET = 128  # tokens of a prompt that a step computes at most, and of all together in a ragged step
SHORTEST, LONGEST = 16, 320  # tokens of a prompt
MEAN_PAUSE = 0.25  # seconds from one request to the next, on average
TOKENS = 48  # what the longest answer has; the others have a quarter of it, or more

FIRST_95 = Quantity("first_95", "95 %, s", places=2)  # 95 of 100 requests have it by then
PADDING = Quantity(
    "padding", "vain, %", factor=100, places=0
)  # rows that the model was run on for no request

LADDERS = (
    Ladder(
        "serving",
        f"{REQUESTS} requests, one every {MEAN_PAUSE:g} s on average, {SEATS} seats",
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
    for name, label, make in (
        ("static", "static batches (2.6)", Static),
        ("continuous", "continuous batching (2.7)", Continuous),
        ("ragged", "ragged batching (3.6)", ragged),
    ):
        yield Case(name, "serving", label, partial(_run, make, model, text), TOKENS)


Make = Callable[["Transformer", "Sequence[Request]"], Server]
"""Makes a way to batch, with memory for some requests."""


def _run(make: Make, model: GetModel, text: Sequence[int], tokens: int) -> Values:
    from tiny_llm.ragged.metrics import percentile

    visits = list(_visits(text, tokens))
    server = make(model("float32"), [visit.request for visit in visits])
    rows, in_vain = serve(server, Door(visits))
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
    from tiny_llm.request import Request

    dice, at = random.Random(0), 0.0
    for _ in range(REQUESTS):
        length = round(SHORTEST * (LONGEST / SHORTEST) ** dice.random())
        start = dice.randrange(len(text) - length)
        request = Request(text[start : start + length], max(1, dice.randint(tokens // 4, tokens)))
        visit = Visit(request, at, Timing())
        request.sample = visit.choose
        yield visit
        at += dice.expovariate(1 / MEAN_PAUSE)


class Continuous:
    """Day 2.7's steps, one at a time, for requests that come later than their start."""

    def __init__(self, model: Transformer, requests: Sequence[Request]) -> None:
        from tiny_llm.static_batch import Batch

        self._model = model
        self._batch = Batch(model, SEATS)
        self._slots: list[Request | None] = [None] * SEATS
        self._prefilling: Prefill | None = None

    @property
    def idle(self) -> int:
        return int(self._prefilling is None)

    @property
    def busy(self) -> bool:
        return self._prefilling is not None or any(self._slots)

    def push(self, request: Request) -> None:
        from tiny_llm.batch import Prefill

        self._prefilling = Prefill(request, self._model)

    def step(self) -> Rows:
        from tiny_llm.batch import decode_slots, prefill_step

        rows = in_vain = 0
        if self._prefilling is not None:
            current, before = self._prefilling, self._prefilling.computed
            self._prefilling = prefill_step(self._batch, self._slots, current, BUDGET)
            rows = current.computed - before
        if any(self._slots):
            rows, in_vain = rows + SEATS, self._slots.count(None)
            decode_slots(self._batch, self._slots)
        return rows, in_vain


class Static:
    """Requests that wait are answered together, as many as there are seats; later ones wait until all have ended."""

    def __init__(self, model: Transformer, requests: Sequence[Request]) -> None:
        self._model = model
        self._gathered: list[Request] = []
        self._slots: list[Request | None] = []

    @property
    def idle(self) -> int:
        return 0 if self.busy and not self._gathered else SEATS - len(self._gathered)

    @property
    def busy(self) -> bool:
        return bool(self._gathered) or any(self._slots)

    def push(self, request: Request) -> None:
        self._gathered.append(request)

    def step(self) -> Rows:
        from tiny_llm.batch import Prefill, decode_slots, prefill_step
        from tiny_llm.static_batch import Batch

        rows = 0
        if self._gathered:
            self._slots = [None] * len(self._gathered)
            self._batch = Batch(self._model, len(self._slots))
            for request in self._gathered:
                prefill_step(self._batch, self._slots, Prefill(request, self._model), None)
                rows += request.prompt_len
            self._gathered = []
        if not any(self._slots):
            return rows, 0
        in_vain = self._slots.count(None)
        decode_slots(self._batch, self._slots)
        return rows + len(self._slots), in_vain


def ragged(model: Transformer, requests: Sequence[Request]) -> Engine:
    """Day 3.6's engine."""
    return Engine(ragged_batch_for(model, requests, SEATS, BUDGET))
