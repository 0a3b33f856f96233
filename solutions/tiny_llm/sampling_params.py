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
        temperature, penalty = self.temperature, self.repetition_penalty
        self._require(
            "temperature", _is_number(temperature) and 0 <= temperature < math.inf, "a number, 0 or more"
        )
        self._require("top_k", _is_whole(self.top_k) and self.top_k >= 0, "a whole number, 0 or more")
        self._require("top_p", _is_number(self.top_p) and 0 < self.top_p <= 1, "above 0 and at most 1")
        self._require("min_p", _is_number(self.min_p) and 0 <= self.min_p <= 1, "from 0 to 1")
        self._require(
            "repetition_penalty", _is_number(penalty) and 0.01 <= penalty <= 100, "a number from 0.01 to 100"
        )
        self._require("seed", self.seed is None or _is_whole(self.seed), "a whole number or None")

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
