"""What a server knows about itself: counts, and how long its requests wait (given code)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tiny_llm.engine_core import EngineCore

RECENT = 1000
"""How many of the newest times are kept: a server that runs for weeks must not keep them all."""


@dataclass(frozen=True)
class Stats:
    """A batcher at one moment. Times are in seconds, None while there are none."""

    waiting: int  # requests in the queue
    running: int  # requests in the engine
    seats: int  # how many requests run together at most
    free_pages: int
    pages: int  # in all, the null page left out
    finished: int  # requests that got their whole answer, since the start; the next three likewise
    cancelled: int
    failed: int
    refused: int  # because the queue was full
    tokens: int  # generated
    steps: int  # runs of the model
    occupancy: float | None  # share of the token budget that recent steps used
    first_token: float | None  # mean time from arrival to the first token, of recent requests
    first_token_95: float | None  # 95 of 100 recent requests had their first token by then
    per_token: float | None  # mean time between two tokens of one request


@dataclass
class Metrics:
    """Counts and recent times. Each number is written by one thread, or under a lock; any thread may read it."""

    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    refused: int = 0
    tokens: int = 0
    steps: int = 0
    occupancies: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    first_tokens: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def step(self, issued: int, token_budget: int) -> None:
        """Note a run of the model over ``issued`` tokens, where there was room for ``token_budget``."""
        self.steps += 1
        self.occupancies.append(issued / token_budget)

    def token(self, since: float, first: bool) -> float:
        """Note a token.

        Args:
            since: when the request came, or, if it has a token already, when that one came (``time.perf_counter``).
            first: whether the token is the request's first.

        Returns:
            when the token came: now.
        """
        now = time.perf_counter()
        self.tokens += 1
        (self.first_tokens if first else self.gaps).append(now - since)
        return now


def stats_of(core: EngineCore, metrics: Metrics, waiting: int, running: int) -> Stats:
    """The figures of a batcher with this engine."""
    return Stats(
        waiting=waiting,
        running=running,
        seats=core.num_seats,
        free_pages=len(core.allocator.free_pages),
        pages=core.allocator.num_pages - 1,
        finished=metrics.finished,
        cancelled=metrics.cancelled,
        failed=metrics.failed,
        refused=metrics.refused,
        tokens=metrics.tokens,
        steps=metrics.steps,
        occupancy=mean(metrics.occupancies),
        first_token=mean(metrics.first_tokens),
        first_token_95=percentile(metrics.first_tokens, 95),
        per_token=mean(metrics.gaps),
    )


def mean(values: Iterable[float]) -> float | None:
    """The average, or None if there are no values. They are copied first: another thread may be adding to them."""
    copy = list(values)
    return sum(copy) / len(copy) if copy else None


def percentile(values: Iterable[float], percent: float) -> float | None:
    """The least of the values that at least ``percent`` % of them don't exceed, or None if there are no values."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)] if ordered else None
