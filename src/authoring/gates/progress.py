"""How far a gate has come: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

SECONDS_BETWEEN_LINES = 20.0
SECONDS_BETWEEN_FRAMES = 0.1


class Meter:
    """Counts finished pieces of work. It draws only when asked: a thread that draws would make forking unsafe."""

    def __init__(self, console: Console, title: str, total: int) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._done = 0
        self._shown = time.monotonic()
        self._bar = _bar(console) if console.is_terminal else None

    def __enter__(self) -> Meter:
        if self._bar is not None:
            self._task = self._bar.add_task(self._title, total=self._total)
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self) -> None:
        """Count one more; `pulse` shows it."""
        self._done += 1
        if self._bar is not None:
            self._bar.advance(self._task)

    def pulse(self) -> None:
        """Show where things stand, if it is time to."""
        pause = SECONDS_BETWEEN_LINES if self._bar is None else SECONDS_BETWEEN_FRAMES
        if time.monotonic() - self._shown < pause:
            return
        self._shown = time.monotonic()
        if self._bar is not None:
            self._bar.refresh()
        else:
            self._console.print(f"  {self._title}: {self._done} of {self._total}")


def _bar(console: Console) -> Progress:
    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, auto_refresh=False, transient=True)
