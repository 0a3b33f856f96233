"""What a connection is told by one end of it, and what a thread holds of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Side:
    """What one end does with what crosses.

    ``pack`` and ``unpack`` turn a message into bytes and back, in the order in which they cross; ``serve`` carries
    out an operation that the other side asks for.
    """

    pack: Callable[[tuple[Any, ...]], bytes]
    unpack: Callable[[bytes], tuple[Any, ...]]
    serve: Callable[[str, tuple[Any, ...]], Any]


class Ticket:
    """A thread's right to its lane; it goes when the thread does."""

    def __init__(self, lane: int, finished: deque[int]) -> None:
        self.lane, self._finished = lane, finished

    def __del__(self) -> None:
        self._finished.append(self.lane)  # sent later: a finalizer may run while a lock is held
