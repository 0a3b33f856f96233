"""The signals that tell a server's process to stop: the first lets calls finish, the next one ends it at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Notes the first SIGINT or SIGTERM; the next one ends the process, with the exit code that shells expect."""

    def __init__(self, at_once: Callable[[], None]) -> None:
        """Take the two signals over. Made on the event loop, in the main thread.

        Args:
            at_once: called before the process ends at once.
        """
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._at_once = at_once
        self._signals = 0
        for number in SIGNALS:
            # Not the event loop's own handlers: they come only when a call gives the loop time.
            signal.signal(number, self._come)

    async def asked_within(self, seconds: float) -> bool:
        """Wait for the first signal, so long at most; whether it has come."""
        try:
            await asyncio.wait_for(self.asked.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _come(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals == 1:
            self._loop.call_soon_threadsafe(self.asked.set)
            return
        try:
            self._at_once()
        finally:
            end_process(128 + number)


def end_process(code: int) -> NoReturn:
    """End the process. The interpreter's own end takes a second or two with torch, and may meet a running step."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(
            OSError, ValueError, RuntimeError
        ):  # closed, or interrupted by a signal in the middle of a write
            stream.flush()
    os._exit(code)
