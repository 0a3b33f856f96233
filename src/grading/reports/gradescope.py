"""``results.json`` of a Gradescope autograder, for one submission.

The format: https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from coursekit.task_state import TaskState
from grading.marks import DayMark, Marks, TaskMark
from grading.reports.book import Book
from grading.reports.learner_view import calls, forbidden, lost_by_lateness
from grading.reports.text import block, counted, line, number

DECIMALS = 4  # else a sum of shares has a tail such as 0.30000000000000004


FAILED = (
    "The autograder itself failed. This says nothing about your code, and 0 is not your score: tell your instructor, "
    "who can run it again."
)


def results_json(marks: Marks, book: Book | None = None, for_instructor: Sequence[str] = ()) -> bytes:
    """The file that ``run_autograder`` leaves in ``/autograder/results``.

    All texts are plain: Gradescope is told to take none of them for HTML or Markdown. The notes of the marks
    aren't in it, since the learner reads it; what is ``for_instructor`` is in a test that Gradescope hides from
    learners.
    """
    tasks = (
        []
        if marks.refusal
        else [_test(day, task, book or Book()) for day in marks.days for task in day.tasks]
    )
    score = 0.0 if marks.refusal else round(marks.earned, DECIMALS)
    return _document(score, marks.seconds, _summary(marks), [*tasks, *_hidden(for_instructor)])


def failure_json(reason: str) -> bytes:
    """The same where the autograder has failed; ``reason`` is for the instructor alone."""
    return _document(0.0, 0.0, FAILED, _hidden([reason]))


def _document(score: float, seconds: float, output: str, tests: Sequence[dict[str, Any]]) -> bytes:
    document = {
        "score": score,
        "execution_time": round(seconds),
        "output": output,
        "output_format": "text",
        "test_output_format": "text",
        "test_name_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
    }
    return json.dumps(document, indent=1, allow_nan=False).encode("ascii")


def _hidden(lines: Sequence[str]) -> list[dict[str, Any]]:
    """A test without points that only the instructor sees; none where there is nothing to say."""
    if not lines:
        return []
    output = "\n".join(line(each, 600) for each in lines)
    return [{"status": "passed", "name": "For the instructor", "output": output, "visibility": "hidden"}]


def _summary(marks: Marks) -> str:
    if marks.refusal:
        return f"Your submission could not be graded:\n{block(marks.refusal)}"
    late = [
        f"Day {line(day.name)}: {counted(day.days_late, 'day')} late, −{number(lost_by_lateness(day))} points"
        for day in marks.days
        if day.days_late
    ]
    return "\n".join([f"{number(marks.earned)} of {number(marks.points)} points", *late])


def _test(day: DayMark, task: TaskMark, book: Book) -> dict[str, Any]:
    passed = task.state in (TaskState.PASSED, TaskState.SKIPPED) and not forbidden(task)
    return {
        "score": round(day.weight * day.kept * task.earned, DECIMALS),
        "max_score": round(day.weight * task.points, DECIMALS),
        "status": "passed" if passed else "failed",
        "name": line(task.title),
        "number": line(task.name),
        "output": "" if task.state == TaskState.PASSED and passed else _output(day, task, book),
        "visibility": "visible",
        "extra_data": {"state": task.state.value},
    }


def _output(day: DayMark, task: TaskMark, book: Book) -> str:
    """What is wrong, and what to do about it."""
    reading = book.reading(day, task)
    parts = [
        f"{task.state.value}: {line(task.sentence, 300)}" if task.sentence else task.state.value,
        line(task.where, 200),
        f"needs {line(task.needs)} first" if task.needs else "",
        f"calls {calls(task)}, which may not do this task's work" if task.shortcuts else "",
        block(task.failure),
    ]
    if task.state != TaskState.SKIPPED:
        parts.append(f"Read again: {reading.link or reading.section} ({reading.command})")
        parts.append(f"Type: pdm run test {line(task.name)}")
    return "\n".join(part for part in parts if part)
