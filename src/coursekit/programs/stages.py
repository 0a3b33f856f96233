"""The stages of the engine: each day that makes it faster, or fit for more requests, adds a line here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coursekit.errors import CourseError
from coursekit.programs.engine import Engine


@dataclass(frozen=True)
class Stage:
    """One way to run the engine: prompt ids and a number of tokens in, the greedy tokens out."""

    number: str
    name: str
    day: str
    generate: Callable[[Engine, Sequence[int], int], list[int]]


def _recompute(engine: Engine, prompt_ids: Sequence[int], max_tokens: int) -> list[int]:
    from tiny_llm.generate import generate_recompute

    return list(generate_recompute(engine.model, prompt_ids, max_tokens, engine.tokenizer.end_ids))


STAGES = (Stage("S0", "recompute", "1.6", _recompute),)


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
