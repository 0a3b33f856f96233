"""The stages of the engine: each day that makes it faster, or fit for more requests, adds a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from coursekit.errors import CourseError
from programs.engine import Engine
from programs.paged import choose_for, make_batch, warm_up
from programs.ragged import requests_for, state_for

SLOTS = 4
"""Slots of the continuous stage: fewer than there are golden prompts, so that some must wait."""

CHUNK_SIZE = 16
"""Its chunk, and the capacity of a ragged step, in tokens: smaller than some golden prompts, larger than others."""

KERNEL = "kernel"
"""The name of the stage whose way to attend can be chosen."""

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
    prepare: Callable[[Engine], None] = lambda engine: None
    """What has to be done once, and is not to be measured."""


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


def _paged(attention: str, engine: Engine, prompts: Prompts, max_tokens: Sequence[int]) -> list[list[int]]:
    from tiny_llm.batch import Request
    from tiny_llm.paged.batch import batch_generate_paged

    end_ids = engine.tokenizer.end_ids
    requests = [Request(prompt, limit, end_ids) for prompt, limit in zip(prompts, max_tokens, strict=True)]
    attend = choose_for(attention, engine.model)
    return batch_generate_paged(make_batch(engine.model, requests, attend, SLOTS, CHUNK_SIZE), requests)


def _ragged(engine: Engine, prompts: Prompts, max_tokens: Sequence[int]) -> list[list[int]]:
    from tiny_llm.ragged.batch import batch_generate_ragged

    requests = requests_for(prompts, max_tokens, engine.tokenizer.end_ids)
    return batch_generate_ragged(engine.model, state_for(engine.model, requests, SLOTS), requests, CHUNK_SIZE)


def _served(engine: Engine, prompts: Prompts, max_tokens: Sequence[int]) -> list[list[int]]:
    from programs.loopback import generate_served

    return generate_served(engine, prompts, max_tokens, SLOTS, CHUNK_SIZE)


def _compile(attention: str, engine: Engine) -> None:
    warm_up(attention, engine.model)


def _on_pages(number: str, name: str, day: str, attention: str) -> Stage:
    return Stage(number, name, day, partial(_paged, attention), partial(_compile, attention))


STAGES = (
    Stage("S0", "recompute", "1.6", _recompute),
    Stage("S1", "cached", "2.1", _cached),
    Stage("S2", "batched", "2.6", _batched),
    Stage("S3", "continuous", "2.7", _continuous),
    _on_pages("S4", "paged", "3.2", "reference"),
    _on_pages("S5", KERNEL, "3.3", "auto"),
    Stage("S6", "ragged", "3.6", _ragged, partial(_compile, "auto")),
)

SERVED_DAY = (3, 7)
SERVED = Stage("S6", "served", "3.7", _served, partial(_compile, "auto"))
"""The last stage once more, through gRPC: each prompt in a call of its own."""


def find_stages(name: str | None, attention: str = "auto") -> tuple[Stage, ...]:
    """The stage of that name, or all of them.

    Args:
        name: of the stage.
        attention: how the kernel stage attends.

    Raises:
        CourseError: there is no such stage; the message lists those there are.
    """
    stages = tuple(
        _on_pages(each.number, each.name, each.day, attention) if each.name == KERNEL else each
        for each in (*STAGES, SERVED)
    )
    if name is None:
        return stages
    found = tuple(stage for stage in stages if stage.name == name)
    if not found:
        names = ", ".join(stage.name for stage in stages)
        raise CourseError(f"there is no stage {name!r}; there are: {names}")
    return found
