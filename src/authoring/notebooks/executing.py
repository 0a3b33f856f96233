"""Runs notebooks on the reference, several at a time."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import deepcopy
from pathlib import Path
from typing import Any

from coursekit.errors import CourseError
from coursekit.machine import THREAD_VARIABLES, cores
from coursekit.paths import ROOT_VARIABLE, Course
from coursekit.running.import_path import Impl
from notebooks import settings

CELL_SECONDS = 240
_COLOR = re.compile(r"\x1b\[[\d;]*m")


def execute_all(
    course: Course,
    books: Mapping[str, Any],
    short: bool,
    at_once: int,
    one_done: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """The notebooks with their outputs; controls are plain pictures. Ctrl-C ends all kernels.

    Args:
        course: whose reference runs.
        books: by name, not run yet; they stay as they are.
        short: measure as little as possible.
        at_once: how many run at the same time, sharing the cores.
        one_done: called after each.

    Returns:
        By name the notebook that was run, or a CourseError: a cell fails or takes too long, or its kernel dies or
        does not start.
    """
    environment = _environment(course, short, max(1, cores() // at_once))
    free = asyncio.Semaphore(at_once)

    async def one(book: Any) -> Any:
        async with free:
            try:
                return await _execute(book, environment)
            except CourseError as error:
                return error
            finally:
                one_done()

    async def every() -> list[Any]:
        return await asyncio.gather(*map(one, books.values()))

    return dict(zip(books, _run_beside(every()), strict=True))


def _run_beside(coroutine: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """Run it in a thread of its own: nbclient would take the signals of the main thread's loop for itself."""
    loop = asyncio.new_event_loop()
    with closing(loop), ThreadPoolExecutor(1) as thread:
        task = loop.create_task(coroutine)
        try:
            return thread.submit(loop.run_until_complete, task).result()
        except BaseException:
            loop.call_soon_threadsafe(task.cancel)
            raise


async def _execute(book: Any, environment: dict[str, str]) -> Any:
    """The notebook with its outputs.

    Raises:
        CourseError: a cell fails or takes too long, or the kernel dies or does not start, with what it says.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    done = deepcopy(book)
    with tempfile.TemporaryDirectory(prefix="tiny-llm-notebook-", ignore_cleanup_errors=True) as folder:
        client = NotebookClient(
            done,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            coalesce_streams=True,
        )
        log = Path(folder) / "kernel.log"  # what isn't a cell's output: warnings, and how it has died
        try:
            with log.open("wb") as stderr:
                await client.async_execute(env=environment, stderr=stderr)
        except CellTimeoutError as error:
            raise CourseError(
                f"a cell takes longer than {CELL_SECONDS} seconds:\n{_end(str(error))}"
            ) from error
        except CellExecutionError as error:
            raise CourseError(_end(str(error))) from error
        except RuntimeError as error:  # the kernel has died, or never began
            raise CourseError(f"{error}\n{_end(log.read_text('utf-8', 'replace'), 5)}".strip()) from error
    done["metadata"] = deepcopy(book["metadata"])  # not the kernel's own version of Python
    for cell in done.cells:
        cell["metadata"].pop("execution", None)  # when it was run
    return done


def _end(text: str, lines: int = 3) -> str:
    """The last lines of what a kernel says, without colors, rules and empty lines: there stands what went wrong."""
    return "\n".join([line for line in _COLOR.sub("", text).splitlines() if line.strip("- ")][-lines:])


def _environment(course: Course, short: bool, threads: int) -> dict[str, str]:
    ours = {
        ROOT_VARIABLE: str(course.root),
        settings.IMPL: Impl.SOLUTION.value,
        settings.PLAIN: "1",
        settings.SHORT: "1" if short else "",
        "TRITON_INTERPRET": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads)), **ours}
