"""The prompts of batch-main in an engine that no LLM stands before: run on a thread of their own, again and again."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from window.scenes import Scene, SceneRunning

if TYPE_CHECKING:
    from tiny_llm.engine_core import Step
    from tiny_llm.request import Request
    from window.watched import WatchedCore

AGAIN = Scene("again", "Run again", "The prompts of batch-main start once more.")


class Stopped(Exception):
    """The run is to end."""


class Run:
    """Brings the same requests to their ends each time that it is started: the :class:`Director` of a page."""

    scenes: Sequence[Scene] = (AGAIN,)

    def __init__(self, watched: WatchedCore, make: Callable[[], list[Request]]) -> None:
        """Nothing runs yet.

        Args:
            watched: the engine, which nothing else drives.
            make: makes the requests anew.
        """
        self.watched = watched
        self._make = make
        self._requests: list[Request] = []
        self._came = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        watched.outside = self.outside

    def start(self, name: str = AGAIN.name) -> None:
        """Start the requests.

        Raises:
            SceneRunning: they still run.
        """
        with self._lock:
            if self._closed or (self._thread is not None and self._thread.is_alive()):
                raise SceneRunning
            self._requests, self._came = self._make(), time.perf_counter()
            self._thread = threading.Thread(target=self._run, name="window's run", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the run after the step that is running, and start no more."""
        self._closed = True

    def join(self, seconds: float) -> None:
        """Wait for the end of the run, so long at most."""
        if self._thread is not None:
            self._thread.join(seconds)

    def outside(self) -> list[tuple[Request, float]]:
        """The requests that wait for room in the engine."""
        inside, most = set(self.watched.core.requests), self.watched.max_positions
        return [
            (each, self._came)
            for each in self._requests
            if each not in inside and each.error is None and not each.finished(most)
        ]

    def _run(self) -> None:
        from tiny_llm.engine_core import generate_all

        try:
            generate_all(self.watched, self._requests, self._look)
        except Stopped:
            pass
        except Exception:
            traceback.print_exc(file=sys.stderr)
        finally:
            self._requests = []

    def _look(self, step: Step) -> None:
        if self._closed:
            raise Stopped
