"""How far a class is: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from coursekit.task_state import TaskState
from grading.marks import DayMark, Marks, Student, TaskMark
from grading.running.progress import Watch, result_line


def shown(is_terminal: bool, *lines: str) -> str:
    output = io.StringIO()
    with Watch(Console(file=output, force_terminal=is_terminal, width=100), "grading [red]", 3) as watch:
        for line in lines:
            watch.step(line)
            watch.tick()
    return output.getvalue()


def test_elsewhere_each_submission_is_a_line_as_it_is() -> None:
    assert shown(False, "ann: 3 [bold]", "", "bob") == "1/3 ann: 3 [bold]\n3/3 bob\n"
    assert shown(False) == ""


def test_in_a_terminal_a_bar_counts_and_there_are_no_lines() -> None:
    text = shown(True, "ann", "bob")
    assert "grading [red]" in text
    assert "2/3" in text
    assert "ann" not in text


def test_the_bar_is_taken_away_after_an_error() -> None:
    output = io.StringIO()
    with (
        pytest.raises(ZeroDivisionError),
        Watch(Console(file=output, force_terminal=True, width=100), "grading", 1),
    ):
        raise ZeroDivisionError
    assert output.getvalue().endswith("\x1b[2K")
    assert "\x1b[?25h" in output.getvalue()  # the cursor is shown again


def test_a_result_is_told_in_one_line() -> None:
    task = TaskMark("1.1.1", "A", 10, 7, TaskState.PASSED, 1, 1)
    days = tuple(DayMark(name, "D", "x.md", (task,), weight=3, kept=0.5) for name in ("1.1", "1.2"))
    marks = Marks(Student("a\nb"), "s", "", "", "", "", datetime.now(UTC), 2.4, days)
    assert result_line(marks) == "a\ufffdb: 14 of 20 points, 2 s"
    refused = Marks(Student("a"), "s", "", "", "", "", datetime.now(UTC), 0.0, days, refusal="it is a link")
    assert result_line(refused) == "a: it is a link"
