"""Lets the steps of an engine through: all of them, slowly, one at a time, or none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum

SLOW_SECONDS = 0.7
"""In slow motion a step begins no sooner than this after the one before it."""


class Mode(StrEnum):
    """How steps go through."""

    PLAY = "play"
    SLOW = "slow"
    PAUSE = "pause"


class Gate:
    """Stands before each step of an engine. One thread runs the steps; any thread may change the mode.

    The thread of the steps never waits for long: :meth:`wait` comes back after some time also while the gate is shut.
    So a thread that has more to do than steps (to free what was cancelled, to end) can do it between two waits, and
    needs no other way to be woken. The lock is never held while a step runs.
    """

    def __init__(
        self,
        mode: Mode = Mode.PLAY,
        slow_seconds: float = SLOW_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin in a mode.

        Args:
            mode: at first.
            slow_seconds: from the beginning of a step to that of the next one in slow motion.
            clock: tells the time in seconds.
        """
        self._slow_seconds = slow_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._mode = mode
        self._granted = 0  # steps that may still go through while the gate is shut
        self._begun = -slow_seconds  # when the last step began
        self._open = False  # for good
        self.version = 0  # one more with each change of the mode

    @property
    def mode(self) -> Mode:
        """How steps go through now."""
        return self._mode

    def set(self, mode: Mode) -> None:
        """Change the mode. Single steps that were granted and have not begun are forgotten."""
        with self._changed:
            self._mode, self._granted = mode, 0
            self.version += 1
            self._changed.notify_all()

    def step(self) -> None:
        """Shut the gate, and let one more step through. Steps that were granted before still come, too."""
        with self._changed:
            self._mode = Mode.PAUSE
            self._granted += 1
            self.version += 1
            self._changed.notify_all()

    def open_for_good(self) -> None:
        """Let everything through from now on, whatever the mode is: the engine is to come to its end."""
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until a step may begin, but not longer than this. Where one may, it counts as begun.

        Returns:
            whether it may.
        """
        deadline = self._clock() + seconds
        with self._changed:
            while (missing := self._missing()) > 0:
                left = deadline - self._clock()
                if left <= 0:
                    return False
                self._changed.wait(min(left, missing))
            if self._mode is Mode.PAUSE and self._granted:
                self._granted -= 1
            self._begun = self._clock()
            return True

    def _missing(self) -> float:
        """Seconds until a step may begin; 0 if it may."""
        if self._open or self._mode is Mode.PLAY or (self._mode is Mode.PAUSE and self._granted):
            return 0.0
        if self._mode is Mode.PAUSE:
            return float("inf")
        return max(0.0, self._begun + self._slow_seconds - self._clock())
