"""Which pages may go to which request: found by trying, one number of pages after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coursekit.check import CheckFailed


def all_can_end(free: int, held: Sequence[int], most: Sequence[int]) -> bool:
    """Whether each in line, the first one first, finds what it may still need, and gives back all that it holds."""
    for holds, needs in zip(held, most, strict=True):
        if needs - holds > free:
            return False
        free += holds
    return True


def with_more(held: Sequence[int], ahead: int, count: int) -> list[int]:
    """What each holds when one of them has taken pages."""
    return [holds + count * (n == ahead) for n, holds in enumerate(held)]


def most_for(free: int, held: Sequence[int], most: Sequence[int], ahead: int) -> int:
    """The most pages that may go to one of them, so that each can still end."""
    return max(
        count
        for count in range(free + 1)
        if count == 0 or all_can_end(free - count, with_more(held, ahead, count), most)
    )


def banker_of(lab: Any, free: int, held: Sequence[int], most: Sequence[int]) -> Any:
    """A banker of a new step, with lists of its own."""
    return lab.ragged.banker.Banker(free, list(held), list(most))


def limits_of(banker: Any, count: int) -> list[int]:
    """What each of the first `count` in line may take."""
    return [banker.limit(ahead) for ahead in range(count)]


def take(banker: Any, ahead: int, count: int) -> None:
    """Pages that may go, by the oracle: the banker must let them."""
    __tracebackhide__ = True
    try:
        banker.take(ahead, count)
    except ValueError as error:
        raise CheckFailed(
            f"take({ahead}, {count}) was refused ({error}), where limit({ahead}) is {banker.limit(ahead)}"
        ) from error
