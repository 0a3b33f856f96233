"""What a program shows while its user has to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

SILENT_SECONDS = 3.0
"""In a file or a pipe a wait is worth a line only if it lasts longer."""

Say = Callable[[str], object]
"""Called with what is done now."""


@contextmanager
def waiting(what: str, console: Console | None = None, only_in_terminal: bool = False) -> Iterator[Say]:
    """Say what the program does while the block runs, and for how long it has done so.

    In a terminal the line turns and counts the seconds, and is gone at the end. Elsewhere it is printed once, and
    only if the wait is long. What the block gives to the function that it gets takes the place of ``what``.

    Args:
        what: the program does.
        console: where to say it, if something else is shown there already; standard error if left out.
        only_in_terminal: the wait is long now and then, but never worth a line in a file.
    """
    console = console or Console(stderr=True, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(what)
            yield lambda text: progress.update(task, description=text)
    elif only_in_terminal:
        yield lambda text: None
    else:
        line = _LateLine(console, what)
        try:
            yield line.change
        finally:
            line.stop()


class _LateLine:
    """A line that is printed unless it is taken back in time."""

    def __init__(self, console: Console, text: str) -> None:
        self._console = console
        self._text = text
        self._timer = threading.Timer(SILENT_SECONDS, self._print)
        self._timer.daemon = True
        self._timer.start()

    def change(self, text: str) -> None:
        self._text = text

    def stop(self) -> None:
        self._timer.cancel()

    def _print(self) -> None:
        self._console.print(self._text, soft_wrap=True, markup=False)
