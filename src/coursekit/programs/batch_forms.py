"""The ways in which `pdm run batch-main` can run the engine, from the best to the first that a learner writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coursekit.programs.answers import Answer
from coursekit.programs.engine import Engine
from coursekit.programs.prompts import PROMPTS, SHORT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiny_llm.batch import Request

Watch = Callable[[Sequence[Answer | None], Answer | None, set[Answer]], object]
"""Called after each step with the answer in each slot, the one being prefilled, and all that are finished."""


@dataclass(frozen=True)
class Limits:
    """What the options of the program bound."""

    max_tokens: int
    slots: int
    chunk: int


Run = Callable[[Engine, Sequence[Answer], Limits, Watch], None]
"""Brings the answers to their ends."""


@dataclass(frozen=True)
class Form:
    """One way to answer the prompts."""

    name: str
    prompts: tuple[str, ...]
    run: Run


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
    Form("several at a time, in slots", PROMPTS, _continuous),
    Form("one after the other, with a cache", SHORT, _cached),
    Form("one after the other, everything recomputed for each token", SHORT, _recompute),
)
