"""How far a class is, on standard error: a bar in a terminal, a line per submission elsewhere."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import Progress

from coursekit.progress_bar import columns
from grading.marks import Marks
from grading.submissions.members import shown


class Watch:
    """Shows what has been graded; a context manager.

    In a terminal it has no thread of its own, so ``tick`` has to be called from time to time.
    """

    def __init__(self, console: Console, what: str, total: int) -> None:
        self._console, self._total, self._count = console, total, 0
        hidden = not console.is_terminal
        self._bar = Progress(*columns(), console=console, transient=True, auto_refresh=False, disable=hidden)
        self._task = self._bar.add_task(what, total=total)

    def __enter__(self) -> Watch:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def tick(self) -> None:
        """Draw the bar anew."""
        self._bar.refresh()

    def step(self, line: str) -> None:
        """Note that one more is done; ``line`` is shown where there is no bar, unless it is empty."""
        self._count += 1
        self._bar.update(self._task, completed=self._count)
        self._bar.refresh()
        if line and not self._console.is_terminal:
            self._console.print(f"{self._count}/{self._total} {line}", soft_wrap=True, markup=False)


def result_line(marks: Marks) -> str:
    """What came out, in one line."""
    name = shown(marks.student.id)
    if marks.refusal:
        return f"{name}: {marks.refusal}"
    earned, points = sum(day.earned for day in marks.days), sum(day.points for day in marks.days)
    return f"{name}: {earned} of {points} points, {marks.seconds:.0f} s"
