"""`pdm run watch` tests again after a save, shows only what changed, and ends well on Ctrl-C."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from courses import make_course, solve
from rich.console import Console
from runs import change, course_command, environment

from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.running.board import Board
from coursekit.running.changes import show_changes
from coursekit.running.results import Report, Result

WAITING = "waiting for the next save"


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


def report(*states: tuple[str, str], message: str = "too small") -> Report:
    """A run in which each of these tasks has one test."""
    results = [
        Result(f"{task}-test", task, "says so", state, 0.1, message if state == "wrong" else "")  # type: ignore[arg-type]
        for task, state in states
    ]
    return Report("learner", "torch", "cpu", {task: 1 for task, _ in states}, results, finished=True)


def changes(course: Course, before: Report, after: Report) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    manifest = load_manifest(course)
    show_changes(Board(course, manifest, manifest.up_to("1.1"), after, "", console), before)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_only_tasks_that_changed_are_shown(course):
    before = report(("1.1.1", "wrong"), ("1.1.2", "wrong"))
    text = changes(course, before, report(("1.1.1", "passed"), ("1.1.2", "wrong")))
    assert "✓ passed       10/10  1.1.1  Area" in text
    assert "✗" not in text
    assert "1.1.2 Perimeter: wrong" in text


def test_a_failure_that_was_shown_already_is_not_shown_again(course):
    before = report(("1.1.1", "wrong"), ("1.1.2", "wrong"))
    text = changes(course, before, report(("1.1.1", "wrong"), ("1.1.2", "passed")))
    assert "✓ passed         5/5  1.1.2" in text
    assert "too small" not in text


def test_a_failure_with_another_message_is_shown(course):
    before, after = report(("1.1.1", "wrong")), report(("1.1.1", "wrong"), message="too large")
    assert "too large" in changes(course, before, after)


def test_where_nothing_changed_one_line_says_so(course):
    failing = report(("1.1.1", "wrong"), ("1.1.2", "passed"))
    again = replace(failing, results=[replace(result, seconds=9.0) for result in failing.results])
    expected = "Nothing changed: 1 of 2 tasks pass; 1.1.1 is wrong for the same reason."
    assert changes(course, failing, again).strip() == expected
    passing = report(("1.1.1", "passed"))
    assert changes(course, passing, passing).strip() == "Nothing changed: 1 of 1 tasks pass."


def test_the_last_task_to_pass_leads_to_the_next_day(course):
    before = report(("1.1.1", "passed"), ("1.1.2", "not started"))
    text = changes(course, before, report(("1.1.1", "passed"), ("1.1.2", "passed")))
    assert "15 of 15 points" in text
    assert "Done: Day 1.1." in text


def rounds(process: subprocess.Popen[str]) -> Iterator[str]:
    """What is printed from one wait for a save to the next."""
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if WAITING in line:
            yield said
            said = ""
    yield said


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no such signal")
def test_a_save_tests_again_and_ctrl_c_ends_with_zero(course):
    solve(course, "1.1.1")
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "coursekit", "watch", "1.1"],
        cwd=course.root,
        env=environment(course),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    with process:
        said = rounds(process)
        first = next(said)
        assert "passed       10/10  1.1.1" in first
        assert "not started    0/5  1.1.2" in first
        change(course, 'raise NotImplementedError("Week 1 Day 1 Task 2: Perimeter")', "return 10")
        second = next(said)
        assert "saved: src/tiny_llm/shapes.py" in second
        assert "passed         5/5  1.1.2" in second
        assert "10/10" not in second
        process.send_signal(signal.SIGINT)
        last = next(said)
        assert "no longer watching" in last
        assert "Traceback" not in last
    assert process.returncode == 0


def test_a_day_that_is_not_there_is_refused_at_once(course):
    ran = course_command(course, "watch", "1.9")
    assert ran.returncode == 2
    assert "there is no Day 1.9" in ran.stderr
