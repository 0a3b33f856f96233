"""The ways in which `pdm run batch-main` can run the engine, from the best to the first that a learner writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from programs import paged, ragged
from programs.answers import Answer
from programs.engine import Engine
from programs.prompts import PROMPTS, SHORT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiny_llm.batch import Request
    from tiny_llm.paged.batch import Running

Watch = Callable[[Sequence[Answer | None], Answer | None, set[Answer]], object]
"""Called after each step with the answer in each slot, the one being prefilled, and all that are finished."""


@dataclass(frozen=True)
class Limits:
    """What the options of the program bound."""

    max_tokens: int
    slots: int
    chunk: int
    attention: str = "auto"


Run = Callable[[Engine, Sequence[Answer], Limits, Watch], None]
"""Brings the answers to their ends."""


@dataclass(frozen=True)
class Form:
    """One way to answer the prompts."""

    stage: str  # the name that --stage knows it by
    name: str
    prompts: tuple[str, ...]
    run: Run
    prepare: Callable[[Engine, Limits], object] = lambda engine, limits: None
    """What has to be done once, before the clocks start."""


def _continuous(engine: Engine, answers: Sequence[Answer], limits: Limits, watch: Watch) -> None:
    from tiny_llm.batch import Request, batch_generate

    end_ids = engine.tokenizer.end_ids
    requests = [Request(each.prompt_ids, limits.max_tokens, end_ids, each.choose) for each in answers]
    answer_of = {id(request): answer for request, answer in zip(requests, answers, strict=True)}
    max_positions = engine.model.config.max_positions

    def observe(slots: Sequence[Request | None], prefilling: Request | None) -> None:
        if prefilling is not None:
            answer_of[id(prefilling)].computed = prefilling.computed
        finished = {answer_of[id(each)] for each in requests if each.output and each.finished(max_positions)}
        seen = [None if each is None else answer_of[id(each)] for each in slots]
        watch(seen, None if prefilling is None else answer_of[id(prefilling)], finished)

    try:
        batch_generate(engine.model, requests, limits.slots, limits.chunk, observe)
    finally:
        for request, answer in zip(requests, answers, strict=True):
            answer.refused = request.error


def _paged(engine: Engine, answers: Sequence[Answer], limits: Limits, watch: Watch) -> None:
    _on_pages("reference", engine, answers, limits, watch)


def _kernel(engine: Engine, answers: Sequence[Answer], limits: Limits, watch: Watch) -> None:
    _on_pages(limits.attention, engine, answers, limits, watch)


def _compile(engine: Engine, limits: Limits) -> None:
    paged.warm_up(limits.attention, engine.model)


def _on_pages(
    attention: str, engine: Engine, answers: Sequence[Answer], limits: Limits, watch: Watch
) -> None:
    from tiny_llm.batch import Request
    from tiny_llm.paged.batch import batch_generate_paged

    attend = paged.choose_for(attention, engine.model)
    end_ids = engine.tokenizer.end_ids
    requests = [Request(each.prompt_ids, limits.max_tokens, end_ids, each.choose) for each in answers]
    batch = paged.make_batch(engine.model, requests, attend, limits.slots, limits.chunk)
    seats = Seats(dict(zip(map(id, requests), answers, strict=True)), limits.slots)
    max_positions = engine.model.config.max_positions

    def observe(plan: Sequence[tuple[Running, int]]) -> None:
        finished = {
            seats.answer_of[id(each)] for each in requests if each.output and each.finished(max_positions)
        }
        decoding, prefilling = seats.after(plan)
        watch(decoding, prefilling, finished)

    try:
        batch_generate_paged(batch, requests, observe)
    finally:
        for request, answer in zip(requests, answers, strict=True):
            answer.refused = request.error


def _ragged(engine: Engine, answers: Sequence[Answer], limits: Limits, watch: Watch) -> None:
    from tiny_llm.batch import Request
    from tiny_llm.ragged.batch import batch_generate_ragged

    end_ids = engine.tokenizer.end_ids
    requests = [Request(each.prompt_ids, limits.max_tokens, end_ids, each.choose) for each in answers]
    answer_of = {id(request): answer for request, answer in zip(requests, answers, strict=True)}
    state = ragged.state_for(engine.model, requests, limits.slots, limits.attention)

    def observe(slots: Sequence[Request | None], lens: Sequence[int]) -> None:
        seen = [None if request is None else answer_of[id(request)] for request in slots]
        for answer, position in zip(seen, state.position, strict=True):
            if answer is not None and not answer.output:
                answer.computed = position
        finished = {
            answer_of[id(each)] for each in requests if each.output and each.finished(state.max_positions)
        }
        watch(seen, None, finished)

    try:
        batch_generate_ragged(engine.model, state, requests, limits.chunk, observe)
    finally:
        for request, answer in zip(requests, answers, strict=True):
            answer.refused = request.error


class Seats:
    """Where the view shows each request that decodes: it stays in the same line for as long as it runs."""

    def __init__(self, answer_of: dict[int, Answer], count: int) -> None:
        self.answer_of = answer_of  # by the id of the request
        self._seats: list[Answer | None] = [None] * count

    def after(self, plan: Sequence[tuple[Running, int]]) -> tuple[list[Answer | None], Answer | None]:
        """The answer in each seat after a step, and the one whose prompt it went on with."""
        here = [self.answer_of[id(each.request)] for each, _ in plan]
        self._seats = [answer if answer in here else None for answer in self._seats]
        prefilling = None
        for (each, count), answer in zip(plan, here, strict=True):
            if count > 1:
                prefilling = answer
                if not answer.output:
                    answer.computed = each.sequence.length
            elif answer not in self._seats:
                self._seats[self._seats.index(None)] = answer
        return list(self._seats), prefilling


def _cached(engine: Engine, answers: Sequence[Answer], limits: Limits, watch: Watch) -> None:
    from tiny_llm.generate import generate

    _one_by_one(generate, engine, answers, limits, watch)


def _recompute(engine: Engine, answers: Sequence[Answer], limits: Limits, watch: Watch) -> None:
    from tiny_llm.generate import generate_recompute

    _one_by_one(generate_recompute, engine, answers, limits, watch)


def _one_by_one(
    generate: Callable[..., Iterator[int]],
    engine: Engine,
    answers: Sequence[Answer],
    limits: Limits,
    watch: Watch,
) -> None:
    finished: set[Answer] = set()
    for answer in answers:
        watch([None], answer, finished)
        end_ids = engine.tokenizer.end_ids
        for _ in generate(engine.model, answer.prompt_ids, limits.max_tokens, end_ids, answer.choose):
            watch([answer], None, finished)
        finished = {*finished, answer}
        watch([answer], None, finished)


FORMS = (
    Form("ragged", "several at a time in ragged batches", PROMPTS, _ragged, _compile),
    Form("kernel", "several at a time on pages, with a kernel", PROMPTS, _kernel, _compile),
    Form("paged", "several at a time on pages", PROMPTS, _paged),
    Form("continuous", "several at a time, in slots", PROMPTS, _continuous),
    Form("cached", "one after the other, with a cache", SHORT, _cached),
    Form("recompute", "one after the other, everything recomputed for each token", SHORT, _recompute),
)
