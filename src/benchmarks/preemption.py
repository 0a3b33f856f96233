"""A ladder of Week 4: the same arrivals on pools of several sizes, with three ways to deal with few pages (4.3)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.arrivals import Door, Engine, Visit, serve
from benchmarks.ladder import MEAN_FIRST, TOKENS_PER_SECOND, Bar, Ladder, Quantity
from benchmarks.rounds import Case, Values
from benchmarks.week_2 import GetModel
from programs.cores import choose_for, make_runner, most_pages, ragged_batch
from programs.extend_cores import preempt_batch
from programs.loaded import Timing

if TYPE_CHECKING:
    from torch import Tensor

    from tiny_llm.engine_core import EngineCore
    from tiny_llm.model import Transformer

REQUESTS = 32
SHORTEST, LONGEST = 16, 120  # tokens of a prompt
MOST = 256  # tokens that a request may generate
FEWEST_TOKENS, TOKENS = 16, 96  # tokens that it generates
MEAN_PAUSE = 0.1  # seconds from one request to the next, on average
POOLS = (40, 80, 160, 320)  # pages
SEATS = 32
BUDGET = 128

PREEMPTIONS = Quantity("preemptions", "preemptions", places=0)
STEPS = Quantity("steps", "steps", places=0)
COMPUTED = Quantity("computed", "tokens computed", places=0)

LADDERS = tuple(
    Ladder(
        f"preemption-{pages}",
        f"{REQUESTS} requests, one every {MEAN_PAUSE:g} s on average, on {pages} pages",
        (TOKENS_PER_SECOND, MEAN_FIRST, PREEMPTIONS, STEPS, COMPUTED),
    )
    for pages in POOLS
)

BARS = tuple(
    Bar(
        f"{pages} pages: preemption brings the first token no later than reservation",
        f"reserve-{pages}",
        f"preempt-{pages}",
        MEAN_FIRST,
        1.0,
    )
    for pages in POOLS
)


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """Each way on each pool.

    Args:
        model: called when a case runs.
        text: token ids to cut the prompts from.
    """
    for pages in POOLS:
        for name, label, make in (
            ("reserve", "reservation (3.2)", _reserve),
            ("banker", "the banker (3.6)", _banker),
            ("preempt", "preemption (4.3)", _preempt),
        ):
            run = partial(_run, make, pages, model, text)
            yield Case(f"{name}-{pages}", f"preemption-{pages}", label, run, TOKENS)


def _reserve(model: Transformer, pages: int) -> EngineCore:
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.paged.batch import PagedBatch

    runner = make_runner(model, 1 + pages, choose_for("auto", model))
    return PagedBatch(runner, PageAllocator(1 + pages), SEATS, BUDGET)


def _banker(model: Transformer, pages: int) -> EngineCore:
    return ragged_batch(model, SEATS, pages, min(pages, most_pages(model)), BUDGET)


def _preempt(model: Transformer, pages: int) -> EngineCore:
    return preempt_batch(model, SEATS, pages, BUDGET)


def _run(
    make: Callable[[Transformer, int], EngineCore],
    pages: int,
    model: GetModel,
    text: Sequence[int],
    tokens: int,
) -> Values:
    the_model = model("float32")
    visits = make_visits(text, min(REQUESTS, 2 * tokens), tokens)
    engine = Engine(make(the_model, pages))
    started = time.perf_counter()
    computed, _ = serve(engine, Door(visits))
    seconds = time.perf_counter() - started
    firsts = [visit.timing.first_token for visit in visits]
    return {
        "tokens_per_second": sum(visit.request.num_generated for visit in visits) / seconds,
        "mean_first": sum(firsts) / len(firsts),
        "preemptions": engine.preemptions,
        "steps": engine.steps,
        "computed": computed,
    }


def make_visits(text: Sequence[int], count: int, tokens: int) -> list[Visit]:
    """The same requests each time: they end long before the most that they may generate, which no engine can know."""
    from tiny_llm.request import Request

    dice, at, visits = random.Random(0), 0.0, []
    for _ in range(count):
        start, length = dice.randrange(len(text) - LONGEST), dice.randint(SHORTEST, LONGEST)
        end = length + max(1, dice.randint(min(FEWEST_TOKENS, tokens), tokens))
        request = Request(text[start : start + length], MOST, (END,))
        visit = Visit(request, at, Timing())
        request.sample = partial(_choose, visit, end)
        visits.append(visit)
        at += dice.expovariate(1 / MEAN_PAUSE)
    return visits


END = -1
"""The token that ends an answer: none that the model knows, so that the length of an answer is ours to choose."""


def _choose(visit: Visit, end: int, logits: Tensor, token_ids: Sequence[int]) -> int:
    """The greedy choice, or the end of an answer that is to have ``end`` tokens with its prompt."""
    token = visit.choose(logits, token_ids)
    return token if len(token_ids) + 1 < end else END
