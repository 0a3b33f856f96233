"""Calls of the service by itself, step by step, with a stand-in for the batcher whose requests the test answers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc

from .beside_answers import new_answer, on_event_loop
from .beside_service import new_context, new_service_loop
from .patience import Mistake, hangs, limit

Code: Any = SimpleNamespace(**{code.name: code.name for code in grpc.StatusCode})
"""The names of the statuses, as in `Code.INTERNAL`."""


class Moment:
    """Something that happens during a call, or does not."""

    def __init__(self) -> None:
        self.has_come = False
        self._over = threading.Event()

    def come(self) -> None:
        self.has_come = True
        self._over.set()

    def give_up(self) -> None:
        """It will not come any more."""
        self._over.set()

    def wait(self, seconds: float) -> bool:
        """Whether it has come, or was given up, by then."""
        return self._over.wait(seconds)


class Desk:
    """Stands for a batcher: it keeps the requests that are submitted, and the test answers them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.taken: list[tuple[Any, Callable[[int], None] | None, Any]] = []
        self.arrived = Moment()

    def require_room(self) -> None:
        """There is room."""

    def submit(self, request: Any, on_token: Callable[[int], None] | None = None) -> Any:
        if not on_event_loop():
            raise Mistake(
                "`submit` was called on another thread than the event loop's: if the call is cancelled just then, "
                "its future is lost, and no one can cancel it. `submit` is quick: call it without `to_thread`"
            )
        if self.error is not None:
            raise self.error
        self.taken.append((request, on_token, new_answer()))
        self.arrived.come()
        return self.taken[-1][2]


def ready(output: list[int]) -> Desk:
    """A batcher that has all tokens at once: they are there before the stream is read for the first time."""

    class Ready(Desk):
        def submit(self, request: Any, on_token: Callable[[int], None] | None = None) -> Any:
            future = super().submit(request, on_token)
            for token in output:
                if on_token is not None:
                    on_token(token)
            future.set_result(output)
            return future

    return Ready()


class Call:
    """A call that runs on the event loop."""

    def __init__(self, loop: Any, job: Any, what: str) -> None:
        self._loop, self._job, self._what = loop, job, what

    def first(self, moment: Moment) -> None:
        """Wait for a moment during the call; if the call ends before that, raise what it raises."""
        __tracebackhide__ = True
        self._job.when_done(moment.give_up)
        if not moment.wait(limit()):
            raise self._hangs()
        if not moment.has_come:
            raise AssertionError(f"the call has ended too early, with {self.result()!r}")

    def result(self) -> Any:
        """What it has returned or raised, once it has ended."""
        __tracebackhide__ = True
        self.end()
        try:
            return self._job.result()
        except Mistake as mistake:
            raise AssertionError(str(mistake)) from None

    def end(self) -> None:
        """Wait for its end, however it ends."""
        __tracebackhide__ = True
        if not self._job.wait(limit()):
            raise self._hangs()

    def refused(self) -> None:
        """Wait for a call that is aborted, by `abort` and nothing else."""
        __tracebackhide__ = True
        if self.aborted():
            return
        try:
            self.result()
        except (ValueError, ArithmeticError, RuntimeError) as error:
            if isinstance(error, NotImplementedError) or type(error) is RuntimeError:
                raise
            raise AssertionError(
                f"{error!r} has come out of the call, and its client would be told UNKNOWN: end it with `refuse`"
            ) from None

    def aborted(self) -> bool:
        """Whether it has ended by `abort`."""
        __tracebackhide__ = True
        self.end()
        return bool(self._loop.aborted(self._job))

    def await_pieces(self, count: int) -> bool:
        """Whether there are as many pieces of a stream soon. If it has ended before that, raise what it raises."""
        __tracebackhide__ = True
        in_time = bool(self._job.wait_for_items(count, limit() / 2))
        if in_time and len(self._job.items()) < count:
            self.result()
        return in_time

    def pieces(self, count: int) -> list[Any]:
        """The first pieces of a stream."""
        __tracebackhide__ = True
        if not self.await_pieces(count):
            raise self._hangs()
        return self.pieces_so_far()[:count]

    def pieces_so_far(self) -> list[Any]:
        return list(self._job.items())

    def all_pieces(self) -> list[Any]:
        """All pieces of a stream, once it has ended."""
        __tracebackhide__ = True
        self.result()
        return self.pieces_so_far()

    def cancel(self) -> bool:
        """Cancel it as gRPC does when a client leaves, and wait for its end; whether it has ended in that way."""
        __tracebackhide__ = True
        self._loop.cancel(self._job)
        self.end()
        return bool(self._job.cancelled)

    def _hangs(self) -> AssertionError:
        noted = self._loop.noted()
        why = f"; on the event loop a callback has raised {noted[0]}" if noted else ""
        return hangs(f"{self._what} has not ended after {limit():g} s{why}")


class Calls:
    """Calls of the service's methods on an event loop."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    def run(self, service: Any, message: Any, context: Any = None, what: str = "Run") -> Call:
        return self._call(self._loop.run(service, message, context or new_context()), what)

    def stream(self, service: Any, message: Any, context: Any = None, what: str = "Stream") -> Call:
        return self._call(self._loop.stream(service, message, context or new_context()), what)

    def read_one(self, service: Any, message: Any) -> Call:
        """A stream that is closed after its first piece."""
        return self._call(self._loop.read_one(service, message, new_context()), "Stream")

    def refuse(self, refuse: Any, context: Any, error: Exception) -> Call:
        return self._call(self._loop.refuse(refuse, context, error), "refuse")

    def future(self, future: Any, what: str) -> Call:
        """A coroutine that awaits a future."""
        return self._call(self._loop.future(future), what)

    def either(self, name: str) -> Callable[..., Call]:
        """`run` for Run, and `stream` for Stream."""
        return self.run if name == "Run" else self.stream

    def _call(self, job: Any, what: str) -> Call:
        return Call(self._loop, job, what)


@contextlib.contextmanager
def calls() -> Iterator[Calls]:
    """An event loop for calls; at the end no call and no future of the test is left pending."""
    loop = new_service_loop()
    try:
        yield Calls(loop)
    finally:
        loop.close(limit())


def settle(future: Any, output: list[int] | None = None, error: Exception | None = None) -> None:
    """Settle a future as the batcher does: on another thread than the event loop's."""
    if error is None:
        future.set_result(output)
    else:
        future.set_exception(error)
    if future.trouble is not None:
        raise AssertionError(
            "a done-callback of the future runs on the batcher's thread, and there it has raised "
            f"{future.trouble!r}. Only the event loop may touch its queue: ask it to by `loop.call_soon_threadsafe`"
        )


def tell(on_token: Callable[[int], Any] | None, token: int) -> None:
    """Call it as the batcher does: on another thread than the event loop's."""
    if on_token is None:
        return
    try:
        on_token(token)
    except RuntimeError as error:
        raise AssertionError(
            f"`on_token` is called on the batcher's thread, and asyncio objects: {error}. Only the event loop may "
            "touch its queue: ask it to, with `loop.call_soon_threadsafe`"
        ) from None
