"""The sampling settings of one request (Day 1.7)."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class SamplingParams:
    """The sampling settings of one request. With the defaults the choice is greedy.

    Raises:
        ValueError: a value is out of range or of another type; the message gives the field, its value and the range.
    """

    temperature: float = 0.0  # 0 is greedy; below 1 sharper, above 1 flatter
    top_k: int = 0  # keep the k best tokens; 0 keeps all
    top_p: float = 1.0  # keep the fewest tokens that reach this probability together; 1 keeps all
    min_p: float = 0.0  # drop tokens less likely than this share of the best token; 0 keeps all
    repetition_penalty: float = 1.0  # above 1 makes tokens that have occurred less likely; from 0.01 to 100
    seed: int | None = None  # the same seed draws the same tokens; None draws differently each time

    def __post_init__(self) -> None:
        """Refuse every value out of range, NaN, infinity, and a bool or a string in place of a number."""
        raise NotImplementedError("Week 1 Day 7 Task 1: Valid parameters")

    def _require(self, name: str, valid: bool, wanted: str) -> None:
        """Raise the ValueError for the field ``name`` unless ``valid``."""
        if not valid:
            raise ValueError(f"{name} is {getattr(self, name)!r}; it must be {wanted}")


def _is_number(value: object) -> bool:
    """Whether this is an int or a float; a bool, which Python counts as an int, is not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    """Whether this is an int and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)
