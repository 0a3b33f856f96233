"""Where a thread's time goes: calls are timed from outside, each without the timed calls inside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any


class Stopwatch:
    """The seconds that one thread spends in some calls, by the name of a part.

    While a timed call runs inside another, only the inner one's part counts. Calls on other threads aren't timed.
    """

    def __init__(self, thread: threading.Thread) -> None:
        """Nothing is timed yet.

        Args:
            thread: a thread that has started.
        """
        self.seconds: dict[str, float] = {}
        self._thread = thread.ident
        self._parts: list[str] = []  # those of the calls that run now, the innermost last
        self._since = 0.0

    def time(self, owner: Any, name: str, part: str) -> None:
        """From now on a method of this object counts for a part."""
        setattr(owner, name, self.timed(getattr(owner, name), part))

    def timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        """The same function, whose calls count for a part."""

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() != self._thread:
                return function(*arguments, **named)
            self._count()
            self._parts.append(part)
            try:
                return function(*arguments, **named)
            finally:
                self._count()
                self._parts.pop()

        return call

    def _count(self) -> None:
        """Count the time since the last change for the part that ran."""
        now = time.perf_counter()
        if self._parts:
            part = self._parts[-1]
            self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self._since = now
