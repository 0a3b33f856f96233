"""Deltas that a coroutine of Day 4.6 iterates over.

Each scenario takes how many seconds it may last, and whom to tell that it has failed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

from coursekit.beside import beside

from .beside_tasks import Call, Fail, Give, Step, called, collect, ending, run, started, take


@beside
def run_and_stream(seconds: float, fail: Fail, one: Call, many: Call) -> tuple[Any, list[Any]]:
    """What a coroutine returns, and the deltas of an iteration beside it."""
    found = list[Any]()

    async def main() -> Any:
        return await asyncio.gather(called(one), collect(called(many), found.append))

    return run(seconds, fail, main)[0], found


@beside
def collected(seconds: float, fail: Fail, call: Call, give: Give) -> None:
    """All deltas of an iteration are given to `give`."""
    run(seconds, fail, lambda: collect(called(call), give))


@beside
def deltas_beside(
    seconds: float,
    fail: Fail,
    call: Call,
    give: Give,
    steps: Sequence[Step],
    ready: Callable[[], bool] | None = None,
    rest: bool = False,
) -> None:
    """The deltas of an iteration, each of which is waited for while another coroutine takes a step.

    Then come the `rest` of them, or the iteration is closed.
    """

    async def main() -> None:
        deltas = called(call)
        for step in steps:
            task = await started(anext(deltas), ready, ready is None)
            step()
            give(await task)
        await (collect(deltas, give) if rest else deltas.aclose())

    run(seconds, fail, main)


@beside
def left_deltas(
    seconds: float,
    fail: Fail,
    call: Call,
    count: int,
    how: str,
    now: Callable[[], Any],
    steps: Sequence[Step] = (),
    ready: Callable[[], bool] | None = None,
) -> tuple[str, Any]:
    """How an iteration ends that is left after some deltas, and what `now` gives at once.

    It is "closed", or else "cancelled" while it waits for one more delta. The steps are taken as soon as the test is
    ready, while the first delta is waited for.
    """

    async def main() -> tuple[str, Any]:
        deltas = called(call)
        for number in range(count):
            task = await started(anext(deltas), None if number else ready, False)
            await take(() if number else steps)
            await task
        if how == "closed":
            await deltas.aclose()
            return how, now()
        task = await started(anext(deltas), None, True)
        task.cancel()
        return await ending(task), now()

    found: tuple[str, Any] = run(seconds, fail, main)
    return found


@beside
def touched_by_others(seconds: float, fail: Fail, call: Call, give: Give) -> list[str]:
    """What other threads than the event loop's do with a queue and the loop, while deltas come."""
    others, put = list[str](), asyncio.Queue.put_nowait

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        mine = threading.get_ident()
        call_soon = loop.call_soon

        def put_here(queue: Any, item: Any) -> None:
            if threading.get_ident() == mine:
                put(queue, item)
            else:
                others.append("has put a delta into an asyncio.Queue")
                loop.call_soon_threadsafe(put, queue, item)

        def call_here(callback: Any, *arguments: Any, context: Any = None) -> Any:
            if threading.get_ident() == mine:
                return call_soon(callback, *arguments, context=context)
            others.append("has called the event loop's `call_soon`")
            return loop.call_soon_threadsafe(callback, *arguments, context=context)

        changed: Any = asyncio.Queue
        changed.put_nowait = put_here
        loop.call_soon = call_here
        try:
            await collect(called(call), give)
        finally:
            changed.put_nowait = put
            loop.call_soon = call_soon

    run(seconds, fail, main)
    return others


@beside
def first_delta_before_its_loop_closes(call: Call) -> tuple[Any, Any]:
    """The first delta, and the iteration, whose event loop has gone since."""
    loop = asyncio.new_event_loop()
    deltas = called(call)
    first = loop.run_until_complete(anext(deltas))
    loop.close()
    return first, deltas
