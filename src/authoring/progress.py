"""How far long work has come: a bar on a terminal, a line now and then elsewhere; and counts in words."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

SECONDS_BETWEEN_LINES = 20.0


class Meter:
    """Counts finished pieces of work."""

    def __init__(self, console: Console, title: str, total: int) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._done = 0
        self._shown = time.monotonic()
        columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    def __enter__(self) -> Meter:
        self._task = self._bar.add_task(self._title, total=self._total)
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._bar.stop()

    def advance(self) -> None:
        """Count one more, and show where things stand, if it is time to."""
        self._done += 1
        self._bar.advance(self._task)
        if self._bar.disable and time.monotonic() - self._shown >= SECONDS_BETWEEN_LINES:
            self._shown = time.monotonic()
            self._console.print(f"  {self._title}: {self._done} of {self._total}")


def count(number: int, singular: str, plural: str = "") -> str:
    """ "1 task", "2 tasks"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
