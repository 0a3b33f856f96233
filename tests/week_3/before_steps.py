"""The requests in Day 3.6's seats before a step, and what must have become of each after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .beside_seats import After, tokens_of


@dataclass(frozen=True)
class Before:
    """A request as it was before a step."""

    running: Any
    request: Any
    token_ids: tuple[int, ...]
    computed: int

    def check(self, number: int, count: int, when: str, after: After) -> None:
        """It has the tokens that it should have after it brought `count`, and as many are computed."""
        __tracebackhide__ = True
        token_ids, finished, computed = after
        had = len(self.token_ids)
        left = had - self.computed - count
        told = f"{when}: request {number} brought {count} tokens, and {left} are due after them: "
        assert token_ids[:had] == self.token_ids, told + "its old tokens changed"
        assert len(token_ids) == had + (count > 0 and left == 0), (
            f"{told}it got {len(token_ids) - had} new tokens; a request gets one exactly when it took part and none "
            "is due any more"
        )
        assert finished or computed == self.computed + count, (
            f"{told}{self.computed} tokens were computed before, and {computed} count as computed now"
        )


def before(seats: list[Any]) -> list[Before | None]:
    """What is in each seat."""
    found = tokens_of(tuple(seats))
    return [None if each is None else Before(seat, *each) for seat, each in zip(seats, found, strict=True)]
