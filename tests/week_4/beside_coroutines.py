"""Coroutines of Day 4.6, beside others that do meanwhile what a test says.

Each scenario takes how many seconds it may last, and whom to tell that it has failed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from coursekit.beside import beside

from .beside_tasks import Call, Fail, Step, called, collect, ending, run, started, take


@beside
def new_future() -> Any:
    return Future()


@beside
def new_queue() -> Any:
    """The queue of an event loop that is still to come."""
    return asyncio.Queue()


@beside
def result_of(seconds: float, fail: Fail, call: Call) -> Any:
    """What a coroutine returns."""
    return run(seconds, fail, lambda: called(call))


@beside
def results_of(seconds: float, fail: Fail, calls: Sequence[Call]) -> list[Any]:
    """What several coroutines return that run at the same time."""

    async def main() -> list[Any]:
        return list(await asyncio.gather(*map(called, calls)))

    found: list[Any] = run(seconds, fail, main)
    return found


@beside
def result_beside(
    seconds: float,
    fail: Fail,
    call: Call,
    steps: Sequence[Step],
    ready: Callable[[], bool] | None = None,
    waits: bool = True,
) -> Any:
    """What a coroutine returns while another one takes these steps.

    Args:
        seconds, fail: as above.
        call: the coroutine.
        steps: taken from when it is `ready`.
        ready: asked until it says so.
        waits: whether the coroutine must not have ended before the first step.
    """

    async def main() -> Any:
        task = await started(called(call), ready, waits)
        await take(steps)
        return await task

    return run(seconds, fail, main)


@beside
def cancelled_after(
    seconds: float,
    fail: Fail,
    call: Call,
    now: Callable[[], Any],
    steps: Sequence[Step] = (),
    ready: Callable[[], bool] | None = None,
    waits: bool = True,
) -> tuple[str, Any]:
    """How a coroutine ends whose task is cancelled after these steps, and what `now` gives at once; else as above."""

    async def main() -> tuple[str, Any]:
        task = await started(called(call), ready, waits)
        await take(steps)
        task.cancel()
        return await ending(task), now()

    found: tuple[str, Any] = run(seconds, fail, main)
    return found


@beside
def cancelled_while_submitting(
    seconds: float, fail: Fail, batcher: Any, call: Call, gives_deltas: bool
) -> str:
    """How a task ends that is cancelled from within `submit`, on whatever thread that is called."""
    over = threading.Event()

    async def main() -> str:
        loop, mine, usual = asyncio.get_running_loop(), threading.get_ident(), batcher.submit

        def submit(*arguments: Any) -> Any:
            loop.call_soon_threadsafe(task.cancel)
            if threading.get_ident() != mine:
                over.wait(seconds)
            return usual(*arguments)

        batcher.submit = submit
        asked = called(call)
        task = asyncio.ensure_future(collect(asked, nowhere) if gives_deltas else asked)
        end = await ending(task)
        over.set()
        return end

    return str(run(seconds, fail, main))


def nowhere(delta: Any) -> None:
    """The delta isn't wanted."""
