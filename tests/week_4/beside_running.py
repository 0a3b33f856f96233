"""What a model runner does with the sequences of a step, where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coursekit.beside import beside


@beside
def pages_and_places(
    sequences: Sequence[Any], counts: Sequence[int]
) -> list[tuple[list[int], list[int], int]]:
    """Of each sequence its pages, the places of all its tokens after the step, and how many of them are new."""
    return [
        (list(each.pages), list(each.places(0, each.length + count)), count)
        for each, count in zip(sequences, counts, strict=True)
    ]


@beside
def advance(sequences: Sequence[Any], counts: Sequence[int]) -> None:
    """Note that so many more tokens of each sequence are in the pool."""
    for sequence, count in zip(sequences, counts, strict=True):
        sequence.advance(count)


@beside
def begin_run(
    sequences: Sequence[Any], tables: Any, counts: Sequence[int], advances: bool
) -> tuple[list[int], list[list[int]]]:
    """How many tokens of each sequence are in the pool, and the rows of the block table; then they may advance."""
    lengths = [each.length for each in sequences]
    if advances:
        advance(sequences, counts)
    return lengths, tables.tolist()


@beside
def everyone(scheduler: Any) -> list[tuple[Any, int, int]]:
    """The requests that run, and those that wait, each with its rank and how many tokens it has."""
    some = [*scheduler.running, *scheduler.waiting]
    return [(each.request, each.rank, len(each.request.token_ids)) for each in some]


@beside
def finished(requests: Sequence[Any], most: int) -> list[Any]:
    """Those that failed, or are finished where a request has at most so many positions."""
    return [each for each in requests if each.error or each.finished(most)]
