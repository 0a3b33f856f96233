"""An event loop on a thread of its own, for a test that starts coroutines there and waits for what comes of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from .beside_answers import Answer, Mistake


class Job:
    """A coroutine that runs on the loop, and the items that it has given so far."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items: list[Any] = []
        self._watchers: list[Callable[[], object]] = []
        self._task: asyncio.Task[Any] | None = None
        self.done = False

    def run(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        task.add_done_callback(self._end)

    def add(self, item: Any) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def items(self) -> tuple[Any, ...]:
        return tuple(self._items)

    def when_done(self, watcher: Callable[[], object]) -> None:
        with self._changed:
            self._watchers.append(watcher)
            done = self.done
        if done:
            watcher()

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by then."""
        with self._changed:
            return self._changed.wait_for(lambda: self.done, seconds)

    def wait_for_items(self, count: int, seconds: float) -> bool:
        """Whether there are as many items by then, or will be no more."""
        with self._changed:
            return self._changed.wait_for(lambda: self.done or len(self._items) >= count, seconds)

    @property
    def cancelled(self) -> bool:
        return self._task is not None and self._task.cancelled()

    @property
    def error(self) -> BaseException | None:
        """What the coroutine has raised. None as long as it runs, too, and where it was cancelled."""
        ended = self._task is not None and self.done and not self.cancelled
        return self._task.exception() if ended and self._task is not None else None

    def result(self) -> Any:
        """What the coroutine has returned, or the exception that it has raised, once it has ended.

        Raises:
            AssertionError: it was cancelled, or was a mistake.
        """
        assert self._task is not None
        if self.cancelled:
            raise AssertionError("the call was cancelled")
        try:
            return self._task.result()
        except Mistake as mistake:
            raise AssertionError(str(mistake)) from None

    def _end(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # or asyncio complains that it was never asked for
        with self._changed:
            self.done = True
            watchers = list(self._watchers)
            self._changed.notify_all()
        for watcher in watchers:
            watcher()


class EventLoop:
    """The loop. In asyncio's debug mode it says when another thread touches what it must not."""

    def __init__(self, debug: bool = True) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_debug(debug)
        self._loop.set_exception_handler(self._note)
        self._noted: list[str] = []
        self._thread = threading.Thread(target=self._run, name="event loop", daemon=True)
        self._thread.start()

    def start(self, function: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any) -> Job:
        """Call a coroutine function on the loop; its first argument is the job."""
        job = Job()

        def begin() -> None:
            job.run(self._loop.create_task(function(job, *arguments)))

        self._loop.call_soon_threadsafe(begin)
        return job

    def cancel(self, job: Job) -> None:
        """As gRPC does it when a client leaves."""
        self._loop.call_soon_threadsafe(lambda: job._task is not None and job._task.cancel())

    def noted(self) -> tuple[str, ...]:
        """What callbacks on the loop have raised."""
        return tuple(self._noted)

    def close(self, seconds: float) -> bool:
        """Cancel what still runs, and end the loop; whether it has ended by then. No :class:`Answer` stays pending:
        a thread that waits for one would hold up the end."""
        Answer.give_up()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._finish())
        finally:
            self._loop.close()

    async def _finish(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        Answer.give_up()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()

    def _note(self, loop: Any, context: dict[str, Any]) -> None:
        """Called with what a callback on the event loop has raised, and with what a call has left behind.

        It isn't printed: the test says what is wrong. To print it, Python 3.11 parses source, which it can't do
        while garbage is collected in the middle of parsing.
        """
        if "exception" in context and "future" not in context:
            self._noted.append(repr(context["exception"]))
