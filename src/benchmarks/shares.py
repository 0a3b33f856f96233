"""A ladder of Week 4: what the host's work takes of a step, with many requests that decode together (4.6)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.ladder import Bar, Ladder, Quantity
from benchmarks.rounds import Case, Values
from benchmarks.watched_http import EventLoop, serving, stream_from_another_process
from benchmarks.watched_steps import WatchedSteps, own_copy, shares
from benchmarks.week_2 import GetModel
from benchmarks.written import require_day
from programs.cores import PAGE_SIZE, warm_up
from programs.source import FAST_DAY

if TYPE_CHECKING:
    from tiny_llm.engine.llm import LLM
    from tiny_llm.tokenizer import Tokenizer

REQUESTS = 32
PROMPT = 40  # tokens
TOKENS = 48
DAY = (4, 6)
TOKENIZER = "smollm2-135m"

STEP = Quantity("step", "step, ms", factor=1000)
PARTS = {
    "model": "model",
    "head": "head",
    "planning": "plan",
    "sampling": "sample",
    "text": "text",
    "loop": "loop",
    "http": "HTTP",
    "host": "host",
}
"""The shares of a step in per cent; the last is all that isn't the model's run."""
HOST = Quantity("host_seconds", "host, ms", factor=1000)

LADDERS = (
    Ladder(
        "shares",
        f"A step of {REQUESTS} requests that decode; per cent of it",
        (STEP, *(Quantity(name, heading, factor=100) for name, heading in PARTS.items())),
    ),
)

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": ("greedy", {}),
    "sampled": ("temperature 0.8, top-p 0.95", {"temperature": 0.8, "top_p": 0.95, "seed": 1}),
    "watched": ("stop strings, 5 logprobs", {"stop": ("\n\n\n\n", "### END"), "logprobs": 5}),
}
"""What the requests ask for: label, settings."""


def bar(name: str, label: str) -> Bar:
    """The host's work takes a tenth of a step at most."""
    return Bar(f"{label}: a step takes 10 times the host's work", name, name, STEP, 10.0, HOST)


FAST = "greedy, Day 4.7's engine"

BARS = (
    *(bar(f"shares-{name}", label) for name, (label, _) in SETTINGS.items()),
    bar("shares-fast", FAST),
    bar("shares-http", "greedy, over HTTP"),
)


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """The same prompts with several settings, on Day 4.7's engine, and over HTTP.

    Args:
        model: called when a case runs.
        text: token ids to cut the prompts from.
    """
    for name, (label, settings) in SETTINGS.items():
        yield Case(
            f"shares-{name}", "shares", label, partial(_run, partial(_ask, settings), model, text), TOKENS
        )
    fast = partial(_run, partial(_ask, SETTINGS["greedy"][1]), model, text, fast=True)
    yield Case("shares-fast", "shares", FAST, fast, TOKENS)
    yield Case(
        "shares-http", "shares", "greedy, over HTTP", partial(_run, _ask_over_http, model, text), TOKENS
    )


Ask = Callable[["LLM", Sequence[list[int]], int], Values]
"""Has an engine answer prompts with so many tokens each, and says what its steps consisted of."""


def _run(ask: Ask, model: GetModel, text: Sequence[int], tokens: int, fast: bool = False) -> Values:
    require_day(FAST_DAY if fast else DAY)
    from tiny_llm.engine.limits import Limits
    from tiny_llm.engine.llm import LLM

    the_model, attention = own_copy(model("fast" if fast else "float32")), "tiled" if fast else "auto"
    warm_up(attention, the_model)
    prompts = [list(text[start : start + PROMPT]) for start in range(REQUESTS)]
    pages = REQUESTS * -(-(PROMPT + tokens) // PAGE_SIZE)
    limits = Limits(REQUESTS, pages, PAGE_SIZE, token_budget=REQUESTS * PROMPT)
    with LLM(the_model, get_tokenizer(), limits=limits, attention=attention) as llm:
        return ask(llm, prompts, tokens)


def get_tokenizer() -> Tokenizer:
    """The model's tokenizer."""
    from tiny_llm.tokenizer import load_tokenizer

    return load_tokenizer(TOKENIZER)


def _ask(settings: dict[str, Any], llm: LLM, prompts: Sequence[list[int]], tokens: int) -> Values:
    from tiny_llm.engine.params import SamplingParams

    watched = WatchedSteps(llm, len(prompts))
    params = SamplingParams(max_tokens=tokens, ignore_end=True, **settings)
    llm.run_all(prompts, [params] * len(prompts))
    return shares(watched.steps)


def _ask_over_http(llm: LLM, prompts: Sequence[list[int]], tokens: int) -> Values:
    """Greedy, streamed. The event loop runs beside the engine's thread: its time on the processor counts."""
    events, times = EventLoop(), list[float]()
    try:
        watched = WatchedSteps(
            llm,
            len(prompts),
            lambda: events.loop.call_soon_threadsafe(lambda: times.append(time.thread_time())),
        )
        with serving(llm, events) as url:
            asked = {"model": "smollm2-135m", "max_tokens": tokens, "temperature": 0, "stream": True}
            bodies = [{**asked, "prompt": prompt, "ignore_eos": True} for prompt in prompts]
            stream_from_another_process(url, bodies)
    finally:
        events.close()
    spent = [later - earlier for earlier, later in pairwise(times)]
    return shares(watched.steps, statistics.median(spent) if spent else 0.0)
