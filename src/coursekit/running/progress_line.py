"""One mark for each test while a run goes on, a line for each day."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import pytest

from coursekit.running.results import Result
from coursekit.task_state import TaskState

MARKS = {
    TaskState.PASSED: ".",
    TaskState.NOT_STARTED: "-",
    TaskState.WRONG: "x",
    TaskState.CRASHED: "!",
    TaskState.SKIPPED: "s",
}
WIDEST = 76


class ProgressLine:
    """Writes to standard output; pytest captures what tests print, not this."""

    def __init__(self) -> None:
        self._day: str | None = None
        self._column = 0

    def add(self, result: Result) -> None:
        """Show how one test ended."""
        day = result.task.rpartition(".")[0] if result.task else "other tests"
        if day != self._day:
            self._new_line(f"Day {day} " if result.task else f"{day} ")
            self._day = day
        elif self._column >= WIDEST:
            self._new_line("        ")
        self._write(MARKS[result.state])

    def end(self) -> None:
        """Finish the line that is begun."""
        if self._column:
            self._write("\n")
            self._column = 0

    def _new_line(self, start: str) -> None:
        self.end()
        self._write(start)

    def _write(self, text: str) -> None:
        # Where nobody reads on, the run still comes to its end: its results are kept.
        with contextlib.suppress(OSError):
            sys.stdout.write(text)
            sys.stdout.flush()
        self._column += len(text)


def silence_terminal(config: pytest.Config) -> None:
    """Put a reporter that writes nowhere in the place of pytest's own; every option goes on working."""
    manager = config.pluginmanager
    manager.unregister(name="terminalreporter")
    nowhere: Any = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (open for as long as pytest runs)
    config.add_cleanup(nowhere.close)
    manager.register(pytest.TerminalReporter(config, nowhere), "terminalreporter")
