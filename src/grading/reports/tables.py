"""``grades.csv``, a row per learner, and ``tasks.csv``, a row per learner and task."""

from __future__ import annotations

from collections.abc import Sequence

from grading.marks import DayMark, Marks
from grading.reports.class_view import by_name
from grading.reports.names import in_order
from grading.reports.spreadsheet import Cell, table

LEARNERS = (
    "id",
    "name",
    "email",
    "submission",
    "submitted",
    "graded",
    "earned",
    "points",
    "percent",
    "refusal",
)
TASKS = (
    *("id", "name", "day", "task", "title", "state", "earned", "points", "tests_passed", "tests"),
    *("days_late", "kept", "weight", "checks", "where", "failure", "calls"),
)


def learners_csv(class_marks: Sequence[Marks]) -> bytes:
    """A row per learner, sorted by name; then a column per day: its points, weighted and with lateness."""
    days = sorted({day.name for marks in class_marks for day in marks.days}, key=in_order)
    header = [*LEARNERS, *(f"day {day}" for day in days)]
    return table([header, *(_learner(marks, days) for marks in by_name(class_marks))], mark=True)


def tasks_csv(class_marks: Sequence[Marks]) -> bytes:
    """A row per learner and task; points are the task's own, before weights and lateness."""
    rows = [_task_rows(marks, day) for marks in by_name(class_marks) for day in marks.days]
    return table([TASKS, *(row for day in rows for row in day)], mark=True)


def _learner(marks: Marks, days: Sequence[str]) -> list[Cell]:
    student, points = marks.student, {day.name: day.weight * day.kept * day.earned for day in marks.days}
    return [
        *(student.id, student.name, student.email, marks.submission),
        marks.submitted.isoformat() if marks.submitted else None,
        marks.graded.isoformat(),
        *((None, None, None) if marks.refusal else (marks.earned, marks.points, marks.percent)),
        marks.refusal,
        *(points.get(day) for day in days),
    ]


def _task_rows(marks: Marks, day: DayMark) -> list[list[Cell]]:
    return [
        [
            *(marks.student.id, marks.student.name, day.name, task.name, task.title, task.state.value),
            *(task.earned, task.points, task.passed, task.planned),
            *(day.days_late, day.kept, day.weight),
            *(task.sentence, task.where, task.failure, ", ".join(task.shortcuts)),
        ]
        for task in day.tasks
    ]
