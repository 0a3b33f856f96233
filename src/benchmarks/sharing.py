"""A ladder of Week 4: requests with a common prefix, on pages that they share and on pages that they don't (4.2)."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.arrivals import Visit
from benchmarks.ladder import MEAN_FIRST, TOKENS_PER_SECOND, Bar, Ladder, Quantity
from benchmarks.rounds import Case, Values
from benchmarks.week_2 import GetModel
from programs.cores import pages_needed
from programs.extend_cores import extend_batch
from programs.loaded import Timing

if TYPE_CHECKING:
    from tiny_llm.scheduling.batch import ExtendBatch

REQUESTS = 32
COMMON = 512  # tokens that all prompts begin with
SHORTEST, LONGEST = 16, 96  # tokens of their own behind these
BUDGET = 256
PAUSE = 4  # steps from one request to the next, where they come one by one
TOKENS = 16
ARRIVALS = {"at-once": 0, "staggered": PAUSE}

COMPUTED = Quantity("computed", "prompt tokens computed", places=0)
REUSED = Quantity("reused", "reused", places=0)

LADDERS = tuple(
    Ladder(
        f"sharing-{name}",
        f"{REQUESTS} requests with {COMMON} common tokens, {when}",
        (COMPUTED, REUSED, MEAN_FIRST, TOKENS_PER_SECOND),
    )
    for name, when in (("at-once", "all at once"), ("staggered", f"one every {PAUSE} steps"))
)

BARS = tuple(
    Bar(
        f"{name}: shared pages save at least 85 % of the prompt tokens",
        f"plain-{name}",
        f"trie-{name}",
        COMPUTED,
        1 / 0.15,
    )
    for name in ARRIVALS
)


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """Both arrivals, without and with shared pages, on the same requests.

    Args:
        model: called when a case runs.
        text: token ids to cut the prompts from.
    """
    for name, pause in ARRIVALS.items():
        for way, label in (("plain", "pages of their own"), ("trie", "shared pages (4.2)")):
            run = partial(_run, way == "trie", pause, model, text)
            yield Case(f"{way}-{name}", f"sharing-{name}", label, run, TOKENS)


def _run(share: bool, pause: int, model: GetModel, text: Sequence[int], tokens: int) -> Values:
    """Answer the requests; a run to warm up, with few tokens, has few of them, too."""
    the_model = model("float32")
    visits = make_visits(text, min(REQUESTS, 2 * tokens), tokens)
    num_pages = sum(pages_needed(the_model, [visit.request for visit in visits]))
    core = extend_batch(the_model, REQUESTS, num_pages, BUDGET, share=share)
    started = time.perf_counter()
    issued = drive(core, visits, pause)
    seconds = time.perf_counter() - started
    output = sum(visit.request.num_generated for visit in visits)
    return {
        "computed": issued - (output - len(visits)),  # the last token of an output is never computed
        "reused": core.scheduler.reused,
        "mean_first": sum(visit.timing.first_token for visit in visits) / len(visits),
        "tokens_per_second": output / seconds,
    }


def make_visits(text: Sequence[int], count: int, tokens: int) -> list[Visit]:
    """The same requests each time: each has the common tokens, then some of its own."""
    from tiny_llm.request import Request

    dice, visits = random.Random(0), []
    repeated = list(text) * (1 + COMMON // len(text))
    for number in range(count):
        start, length = dice.randrange(len(text) - LONGEST), dice.randint(SHORTEST, LONGEST)
        own = [text[number % len(text)], *text[start : start + length - 1]]
        visit = Visit(Request([*repeated[:COMMON], *own], tokens), 0.0, Timing())
        visit.request.sample = visit.choose
        visits.append(visit)
    return visits


def drive(core: ExtendBatch, visits: Sequence[Visit], pause: int) -> int:
    """Push a request every ``pause`` steps, all at once if it is 0, and run the engine until all are answered.

    Returns:
        how many tokens were computed.
    """
    waiting, step, issued = deque(visits), 0, 0
    while waiting or core.requests:
        while waiting and step >= pause * (len(visits) - len(waiting)):
            visit = waiting.popleft()
            visit.timing.started = time.perf_counter()
            core.push(visit.request)
        issued += sum(count for _, count in core.step().issued)
        step += 1
    return issued
