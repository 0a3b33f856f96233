"""Futures of a test's own in the process of the learner's code, and what only that process can say of futures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar

from coursekit.beside import beside


class Mistake(BaseException):
    """Tells what is wrong, past every `except Exception` on the way to the test."""


class Answer(Future[Any]):
    """A future that is awaited: waiting for it with `result` is a mistake. So is a callback that raises."""

    pending: ClassVar[set[Future[Any]]] = set()

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Exception | None = None
        self.pending.add(self)
        self.add_done_callback(self.pending.discard)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """As usual; but what the callback raises is kept, where a plain future only logs it."""

        def noting(future: Any) -> None:
            try:
                fn(future)
            except Exception as error:
                self.trouble = self.trouble or error

        super().add_done_callback(noting)

    def result(self, timeout: float | None = None) -> Any:
        self._stop_waiting("result")
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._stop_waiting("exception")
        return super().exception(timeout)

    @classmethod
    def give_up(cls) -> None:
        """No thread is to wait any longer for one that is pending."""
        for future in list(cls.pending):
            future.cancel()

    def _stop_waiting(self, what: str) -> None:
        if not self.done():
            raise Mistake(
                f"`future.{what}()` was called before the answer was there: in a coroutine it stops the event loop, "
                "and on a thread it can't be cancelled. Await `asyncio.wrap_future(future)`"
            )


@beside
def new_answer() -> Any:
    return Answer()


@beside
def is_future(value: Any) -> bool:
    """Whether it is a future of threads, of any class."""
    return isinstance(value, Future)


@beside
def settled(future: Future[Any], seconds: float) -> bool:
    """Whether it has an output or an error by then, or was cancelled."""
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    return done.wait(seconds)


@beside
def on_event_loop() -> bool:
    """Whether this is the thread of an event loop, in the middle of a callback of it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
