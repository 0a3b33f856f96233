"""Running code on threads so that a test can't hang, and sees what went wrong there."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from .beside_answers import Answer
from .beside_threads import tell_thread_errors
from .patience import Mistake, hangs, limit
from .serving import check_at_rest, give_up, let_go


def within(
    function: Callable[[], Any],
    what: str,
    seconds: float | None = None,
    failures: Sequence[BaseException] = (),
) -> Any:
    """What `function` returns or raises; it runs on a thread, and fails the test if it takes too long.

    What it puts into `failures` meanwhile is raised instead, also where it never ends after that.
    """
    __tracebackhide__ = True
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    seconds = limit() if seconds is None else seconds
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    begun = time.monotonic()
    while not future.done() and not failures and time.monotonic() < begun + seconds:
        thread.join(0.02)
    if failures:
        thread.join(0.2)
        raise failures[0]
    if not future.done():
        raise hangs(f"{what} has not ended after {seconds:g} s")
    try:
        return future.result()
    except Mistake as mistake:
        raise AssertionError(str(mistake)) from None


def run_async(main: Callable[[], Coroutine[Any, Any, Any]], what: str) -> Any:
    """Run a coroutine on an event loop of its own, which says when another thread touches what it must not.

    At the end no future of the test is left pending: a thread that still waits for one would hold up the loop's end,
    and the interpreter's.
    """
    __tracebackhide__ = True
    seconds = limit()
    failures, noted = list[BaseException](), list[BaseException]()

    def note(loop: Any, context: dict[str, Any]) -> None:
        """Called with what a callback on the event loop has raised, and with what a call has left behind.

        It isn't printed: the test says what is wrong. To print it, Python 3.11 parses source, which it can't do
        while garbage is collected in the middle of parsing.
        """
        if "exception" in context and "future" not in context:
            noted.append(context["exception"])

    async def limited() -> Any:
        asyncio.get_running_loop().set_exception_handler(note)
        try:
            async with asyncio.timeout(seconds):
                return await main()
        except TimeoutError:
            why = f"; on the event loop a callback has raised {noted[0]!r}" if noted else ""
            failures.append(hangs(f"{what} has not ended after {seconds:g} s{why}"))
        except Mistake as mistake:
            failures.append(AssertionError(str(mistake)))
        except BaseException as error:
            failures.append(error)
        finally:
            Answer.give_up()

    try:
        return within(lambda: asyncio.run(limited(), debug=True), what, seconds + 1, failures)
    finally:
        Answer.give_up()


class ThreadErrors:
    """Collects what ends threads, instead of printing it. `tell` is called when there is one."""

    def __init__(self, tell: Callable[[], None] = lambda: None) -> None:
        self.errors: list[BaseException] = []
        self.changed = threading.Condition()
        self.tell = tell

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Raise the first of them at the end: it is the cause of all that went wrong after it."""
        end = tell_thread_errors(self._note)
        before, threading.excepthook = threading.excepthook, self._note_own
        try:
            yield
        except BaseException:
            self._raise()
            raise
        finally:
            threading.excepthook = before
            end()
        self._raise()

    def _note_own(self, arguments: threading.ExceptHookArgs) -> None:
        """Called with what ends a thread of the test's own."""
        if arguments.exc_value is not None:
            self._note(arguments.exc_value)

    def _note(self, error: BaseException) -> None:
        with self.changed:
            self.errors.append(error)
            self.changed.notify_all()
        self.tell()

    def _raise(self) -> None:
        if self.errors and isinstance(self.errors[0], Mistake):
            raise AssertionError(str(self.errors[0])) from None
        if self.errors:
            raise self.errors[0]


class Running:
    """A batcher whose loop runs while the block does; at the end it is stopped, and everything is free and settled.

    An exception that ends the loop is raised in the test. Futures must come from `submit`.
    """

    def __init__(self, batcher: Any) -> None:
        self.batcher = batcher
        self.futures: list[Future[list[int]]] = []
        self.threads = ThreadErrors(lambda: give_up(batcher.core))
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self.stack.enter_context(self.threads.collected())
        self.batcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.stack:
            let_go(self.batcher.core)
            if kind is not None and self.threads.errors:
                return
            seconds = limit()
            ended = self.batcher.stop(drain=False, timeout=seconds)
            if kind is None:
                if not ended:
                    raise hangs(f"the loop has not ended {seconds:g} s after the batcher was stopped")
                if not self.threads.errors:
                    check_at_rest(self.batcher, self.futures)

    def submit(self, request: Any, *rest: Any) -> Future[list[int]]:
        future: Future[list[int]] = self.batcher.submit(request, *rest)
        self.futures.append(future)
        future.add_done_callback(lambda _: self._wake())
        return future

    def wait(self, *futures: Future[list[int]]) -> None:
        """Wait until they are settled, or the loop has failed."""
        __tracebackhide__ = True
        seconds = limit()
        with self.threads.changed:
            self.threads.changed.wait_for(
                lambda: self.threads.errors or all(future.done() for future in futures), seconds
            )
        self.threads._raise()
        left = sum(not future.done() for future in futures)
        if left:
            raise hangs(f"{left} of {len(futures)} futures are not settled after {seconds:g} s")

    def result(self, future: Future[list[int]]) -> list[int]:
        """The output that a future gets, or the error that is raised from it."""
        __tracebackhide__ = True
        self.wait(future)
        return future.result()

    def _wake(self) -> None:
        with self.threads.changed:
            self.threads.changed.notify_all()
