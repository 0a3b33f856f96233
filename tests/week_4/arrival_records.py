"""What is known of the requests of :mod:`.arrivals`, and of a page cache before and after a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(eq=False)
class Request:
    """The tokens that it knows now, those that it will have at its end, and its sequence."""

    name: str
    sequence: Any
    token_ids: list[int]
    script: list[int]


class Books(NamedTuple):
    """Of a sequence and its cache, before or after a call."""

    length: int
    pages: list[int]
    evicted: int
    free: int
    available: int


@dataclass(frozen=True)
class Planned:
    """What a step computes of a request: its tokens from `start` to `stop` − 1."""

    request: Request
    start: int
    stop: int
