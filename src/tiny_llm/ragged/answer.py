"""The future that a caller holds (given code, Day 3.7)."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any

NOT_FOR_FUTURES = (StopIteration, asyncio.CancelledError, concurrent.futures.CancelledError)
"""On Python 3.11 a coroutine that awaits a StopIteration waits for ever; the other two look like a cancel."""


class Answer(concurrent.futures.Future[list[int]]):
    """The future of an output. Every exception comes through it, and no callback harms the thread that settles it."""

    def set_exception(self, exception: BaseException | None) -> None:
        """As usual; but an exception that a future can't carry becomes a RuntimeError that names it."""
        if isinstance(exception, NOT_FOR_FUTURES):
            exception = RuntimeError(f"{type(exception).__name__}: {exception}")
        super().set_exception(exception)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """As usual: what the callback raises is logged. Here that also holds for what is no Exception."""

        def guarded(future: Any) -> None:
            try:
                fn(future)
            except Exception:
                raise
            except BaseException as error:
                raise RuntimeError(f"a callback has ended with {type(error).__name__}") from error

        super().add_done_callback(guarded)
