"""The ladder of the whole course: the same requests on every stage, and on every step of Day 4.7."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks.ladder import TOKENS_PER_SECOND, Ladder
from benchmarks.rounds import Case, Values
from benchmarks.shares import get_tokenizer
from benchmarks.week_2 import GetModel
from benchmarks.written import require_day
from programs.cores import PAGE_SIZE, pages_needed
from programs.extend_cores import preempt_batch
from programs.loaded import LoadedModel
from programs.stage import Limits, Stage
from programs.stages import GRPC, SERVED, STAGES

if TYPE_CHECKING:
    from tiny_llm.model import Transformer
    from tiny_llm.request import Request

TOKENS = 48  # what the longest answer has
BUDGET = 256  # tokens of a step at most, and of a prompt in a chunk
FAST_DAY = (4, 7)


@dataclass(frozen=True)
class Workload:
    """Requests that come all at once, greedy; lengths are taken in turns."""

    name: str
    requests: int
    prompts: Sequence[int]  # tokens of a prompt
    shares: Sequence[float]  # which part of the longest answer's tokens an answer has

    def make(self, text: Sequence[int], tokens: int) -> list[Request]:
        """The requests, no two of which begin alike.

        Args:
            text: token ids to cut the prompts from.
            tokens: how many the longest answer has. With few, as in a run to warm up, there are few requests, too.
        """
        from tiny_llm.request import Request

        starts = len(text) - max(self.prompts)
        requests = []
        for i in range(min(self.requests, 2 * tokens)):
            start, turn = 7 * i % starts, i % len(self.prompts)
            prompt = text[start : start + self.prompts[turn]]
            requests.append(Request(prompt, max(1, round(tokens * self.shares[turn]))))
        return requests


SINGLE = Workload("single", 1, (64,), (1.0,))
MANY = Workload("many", 32, (16, 40, 24, 64), (1.0, 0.25, 0.75, 0.5))

LADDERS = (
    Ladder("stages-single", "From stage to stage: one request", (TOKENS_PER_SECOND,), climbs=True),
    Ladder(
        "stages-many", f"From stage to stage: {MANY.requests} requests", (TOKENS_PER_SECOND,), climbs=True
    ),
)

BARS = ()

Answer = Callable[["Transformer", "Sequence[Request]"], float]
"""Brings requests to their ends, and says how many tokens they got per second, once the engine was there."""


@dataclass(frozen=True)
class Step:
    """A step of the ladder."""

    name: str
    label: str
    form: str  # of the model
    answer: Answer
    one_by_one: bool = False  # whether one request is answered after the other


def steps() -> Iterator[Step]:
    """From the first stage to the fast engine."""
    for stage in STAGES:
        if stage not in (GRPC, SERVED):  # the former is S6 behind a network
            label = f"{stage.number} {stage.name} ({stage.day[0]}.{stage.day[1]})"
            yield Step(stage.name, label, "float32", partial(_by_stage, stage), stage.short_prompts)
    served = partial(by_engine, "auto", SERVED.day)
    yield Step(SERVED.name, f"{SERVED.number} served (4.6)", "float32", served)
    yield Step("bfloat16", "S10 in bfloat16", "bfloat16", served)
    yield Step("packed", "packed, bfloat16 (4.7)", "packed", partial(by_engine, "tiled", FAST_DAY))
    yield Step("blocks", "blocks in 8 bits (4.7)", "fast", partial(by_engine, "auto", FAST_DAY))
    yield Step("tiles", "attention in tiles (4.7)", "fast", partial(by_engine, "tiled", FAST_DAY))


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """Every step from the first stage to the fast engine, as :func:`cases_of` makes them."""
    return cases_of(steps, "stages", model, text)


def cases_of(
    steps: Callable[[], Iterator[Step]], name: str, model: GetModel, text: Sequence[int]
) -> Iterator[Case]:
    """Every step with one request, then every step with many.

    Args:
        steps: makes the steps. name: what the names of their two ladders begin with.
        model: called when a case runs; Day 4.7's model is the form "packed" in bfloat16, and "fast" in 8 bits.
        text: token ids to cut the prompts from.
    """
    for workload in (SINGLE, MANY):
        for step in steps():
            run = partial(_run, step, workload, model, text)
            yield Case(f"{step.name}-{workload.name}", f"{name}-{workload.name}", step.label, run, TOKENS)


def _run(step: Step, workload: Workload, model: GetModel, text: Sequence[int], tokens: int) -> Values:
    """Answer the requests; of many that are answered one by one, a turn of all lengths has the same speed as all."""
    the_model, requests = model(step.form), workload.make(text, tokens)
    if step.one_by_one:
        requests = requests[: len(workload.prompts)]
    return {"tokens_per_second": step.answer(the_model, requests)}


ENDLESS: Any = SimpleNamespace(end_ids=())
"""In a tokenizer's place: no token ends an answer, so each has its length in every run."""


def _by_stage(stage: Stage, model: Transformer, requests: Sequence[Request]) -> float:
    started = time.perf_counter()
    if stage.scarce:  # with its few pages it would answer hardly two at a time
        _preempt_with_room(model, requests)
    else:
        stage.run(LoadedModel(model, ENDLESS), requests, Limits(len(requests), BUDGET), lambda seen: None)
    return sum(each.num_generated for each in requests) / (time.perf_counter() - started)


def _preempt_with_room(model: Transformer, requests: Sequence[Request]) -> None:
    from tiny_llm.engine_core import generate_all

    generate_all(preempt_batch(model, len(requests), sum(pages_needed(model, requests)), BUDGET), requests)


def by_engine(
    attention: str,
    day: tuple[int, int],
    model: Transformer,
    requests: Sequence[Request],
    warm_up: bool = False,
) -> float:
    """Tokens per second of the served engine.

    Args:
        attention: the name of the way to attend.
        day: the one on which the engine is written.
        model: on any device. requests: what is answered.
        warm_up: answer as many other requests before, in the same engine; none of their pages can be used again.

    Raises:
        CourseError: the day isn't written.
    """
    require_day(day)
    from tiny_llm.engine.limits import Limits as EngineLimits
    from tiny_llm.engine.llm import LLM
    from tiny_llm.engine.params import SamplingParams

    limits = EngineLimits(len(requests), sum(pages_needed(model, requests)), PAGE_SIZE, BUDGET)
    params = [SamplingParams(max_tokens=each.max_tokens, ignore_end=True) for each in requests]
    with LLM(model, get_tokenizer(), limits=limits, attention=attention) as llm:
        if warm_up:
            llm.run_all([list(reversed(each.prompt_ids)) for each in requests], params)
        started = time.perf_counter()
        outputs = llm.run_all([each.prompt_ids for each in requests], params)
        seconds = time.perf_counter() - started
    return sum(each.completion_tokens for each in outputs) / seconds
