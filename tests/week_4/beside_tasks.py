"""An event loop of its own for a scenario of Day 4.6, and tasks on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

Call = tuple[Any, ...]
"""A function and its arguments."""
Fail = Callable[[BaseException | None, str], object]
"""Called with what was raised, or with None when the time is over; and with what a callback has raised before."""
Give = Callable[[Any], object]
Step = Callable[[], object]


def run(seconds: float, fail: Fail, main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine on an event loop of its own, which says when another thread touches what it must not."""
    noted = list[BaseException]()

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
            fail(None, repr(noted[0]) if noted else "")
        except BaseException as error:
            fail(error, "")

    return asyncio.run(limited(), debug=True)


def called(call: Call) -> Any:
    """What the function gives."""
    function, *arguments = call
    return function(*arguments)


async def turns() -> None:
    """Let every coroutine that can go on do so, until each waits for something."""
    for _ in range(20):
        await asyncio.sleep(0)


async def started(
    coroutine: Coroutine[Any, Any, Any], ready: Callable[[], bool] | None, waits: bool
) -> asyncio.Task[Any]:
    """A task that runs the coroutine until it waits for something, and the test is ready."""
    task = asyncio.ensure_future(coroutine)
    while ready is not None and not ready():
        await asyncio.sleep(0)
    await turns()
    assert not (waits and task.done()), f"it has ended before its answers were there: {task}"
    return task


async def take(steps: Sequence[Step]) -> None:
    """Take them one by one; each coroutine does in between what it can."""
    for step in steps:
        step()
        await turns()


async def ending(task: asyncio.Task[Any]) -> str:
    """How a task has ended, in a word."""
    try:
        await task
    except asyncio.CancelledError:
        return "cancelled"
    except Exception as error:
        return type(error).__name__
    return "complete"


async def collect(deltas: Any, give: Give) -> None:
    """Give away all deltas."""
    async for delta in deltas:
        give(delta)
