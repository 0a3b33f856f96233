"""Requests that come when they like, and how a way to batch is driven with them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from programs.loaded import Timing

if TYPE_CHECKING:
    from torch import Tensor

    from tiny_llm.engine_core import EngineCore
    from tiny_llm.request import Request


@dataclass
class Visit:
    """A request and when it comes, in seconds from the start."""

    request: Request
    at: float
    timing: Timing

    def choose(self, logits: Tensor, token_ids: Sequence[int]) -> int:
        """The greedy choice, which also notes when the token came."""
        from tiny_llm.generate import greedy

        self.timing.stamp()
        return greedy(logits)


class Door:
    """Lets requests in when their time has come."""

    def __init__(self, visits: Sequence[Visit]) -> None:
        self._coming = deque(visits)
        self._started = time.perf_counter()
        for visit in visits:
            visit.timing.started = self._started + visit.at

    def __bool__(self) -> bool:
        """Whether a request has still to come."""
        return bool(self._coming)

    def come_in(self, wait: bool) -> list[Request]:
        """The requests whose time has come; if there is none, and nothing else to do, wait for the next one."""
        if wait and self._coming:
            time.sleep(max(0.0, self._started + self._coming[0].at - time.perf_counter()))
        now = time.perf_counter() - self._started
        came = []
        while self._coming and self._coming[0].at <= now:
            came.append(self._coming.popleft().request)
        return came


Rows = tuple[int, int]
"""How many rows the model was run on, and how many of them belonged to no request."""


class Server(Protocol):
    """A way to batch requests that come one by one."""

    @property
    def idle(self) -> int:
        """How many requests may be pushed now."""

    @property
    def busy(self) -> bool:
        """Whether there is a request in it."""

    def push(self, request: Request) -> None:
        """Take a request in."""

    def step(self) -> Rows:
        """Do a step, and say what the model was run on."""


def serve(server: Server, door: Door) -> Rows:
    """Push every request as soon as it has come and there is room, until all are answered."""
    waiting: deque[Request] = deque()
    rows = in_vain = 0
    while door or waiting or server.busy:
        waiting.extend(door.come_in(wait=not (waiting or server.busy)))
        while waiting and server.idle:
            server.push(waiting.popleft())
        ran, vain = server.step()
        rows, in_vain = rows + ran, in_vain + vain
    return rows, in_vain


class Engine:
    """An engine on pages, driven like the other ways."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.steps = 0
        self.preemptions = 0

    @property
    def idle(self) -> int:
        return self.core.idle

    @property
    def busy(self) -> bool:
        return bool(self.core.requests)

    def push(self, request: Request) -> None:
        self.core.push(request)

    def step(self) -> Rows:
        step = self.core.step()
        self.steps += 1
        self.preemptions += len(step.preempted)
        return sum(count for _, count in step.issued), 0
