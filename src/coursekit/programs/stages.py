"""The stages of the engine: each day that makes it faster, or fit for more requests, adds a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from coursekit.errors import CourseError
from coursekit.programs.engine import Engine

SLOTS = 4
"""Slots of the continuous stage: fewer than there are golden prompts, so that some must wait."""

CHUNK_SIZE = 16
"""Its chunk, in tokens: smaller than some golden prompts, larger than others."""

Prompts = Sequence[Sequence[int]]
Generate = Callable[[Engine, Prompts, Sequence[int]], list[list[int]]]
"""The prompts' token ids, and how many tokens each gets at most, in; the new tokens of each prompt out."""


@dataclass(frozen=True)
class Stage:
    """One way to run the engine, greedily, on all prompts."""

    number: str
    name: str
    day: str
    generate: Generate


def _recompute(engine: Engine, prompts: Prompts, max_tokens: Sequence[int]) -> list[list[int]]:
    from tiny_llm.generate import generate_recompute

    return _one_by_one(generate_recompute, engine, prompts, max_tokens)


def _cached(engine: Engine, prompts: Prompts, max_tokens: Sequence[int]) -> list[list[int]]:
    from tiny_llm.generate import generate

    return _one_by_one(generate, engine, prompts, max_tokens)


def _one_by_one(
    generate: Callable[..., Iterator[int]], engine: Engine, prompts: Prompts, max_tokens: Sequence[int]
) -> list[list[int]]:
    return [
        list(generate(engine.model, prompt, limit, engine.tokenizer.end_ids))
        for prompt, limit in zip(prompts, max_tokens, strict=True)
    ]


def _batched(engine: Engine, prompts: Prompts, max_tokens: Sequence[int]) -> list[list[int]]:
    """Static batching has one limit for all; whoever's own is lower is cut to it."""
    from tiny_llm.static_batch import generate_static

    outputs = generate_static(engine.model, prompts, max(max_tokens), engine.tokenizer.end_ids)
    return [output[:limit] for output, limit in zip(outputs, max_tokens, strict=True)]


def _continuous(engine: Engine, prompts: Prompts, max_tokens: Sequence[int]) -> list[list[int]]:
    from tiny_llm.batch import Request, batch_generate

    end_ids = engine.tokenizer.end_ids
    requests = [Request(prompt, limit, end_ids) for prompt, limit in zip(prompts, max_tokens, strict=True)]
    return batch_generate(engine.model, requests, max_slots=SLOTS, chunk_size=CHUNK_SIZE)


STAGES = (
    Stage("S0", "recompute", "1.6", _recompute),
    Stage("S1", "cached", "2.1", _cached),
    Stage("S2", "batched", "2.6", _batched),
    Stage("S3", "continuous", "2.7", _continuous),
)


def find_stages(name: str | None) -> tuple[Stage, ...]:
    """The stage of that name, or all of them.

    Raises:
        CourseError: there is no such stage; the message lists those there are.
    """
    if name is None:
        return STAGES
    found = tuple(stage for stage in STAGES if stage.name == name)
    if not found:
        names = ", ".join(stage.name for stage in STAGES)
        raise CourseError(f"there is no stage {name!r}; there are: {names}")
    return found
