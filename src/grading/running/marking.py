"""Turns what the tests found into marks."""

from __future__ import annotations

from collections.abc import Sequence

from coursekit.manifest import Lesson, Task
from coursekit.running.board import earned
from coursekit.running.results import Report, TaskResult
from coursekit.task_state import TaskState
from grading.marks import DayMark, TaskMark


def mark_days(lessons: Sequence[Lesson], report: Report) -> tuple[DayMark, ...]:
    """The marks of some days.

    A task earns its points when all its tests were run, each of them passed, and the code made no call that does the
    task's work. Where all its tests were skipped, because they can't run on this machine, it costs no points: there
    are none to earn.
    """
    results = report.tasks
    return tuple(
        _day(lesson, [_task(task, results.get(task.name), report) for task in lesson.tasks])
        for lesson in lessons
    )


def mark_nothing(lessons: Sequence[Lesson]) -> tuple[DayMark, ...]:
    """The marks of a learner whose code was not run: every task is there, and none is begun."""
    return tuple(_day(lesson, [_unmarked(task) for task in lesson.tasks]) for lesson in lessons)


def _day(lesson: Lesson, tasks: Sequence[TaskMark]) -> DayMark:
    return DayMark(lesson.name, lesson.title, lesson.chapter, tuple(tasks))


def _unmarked(task: Task, planned: int = 0, failure: str = "", where: str = "") -> TaskMark:
    return TaskMark(
        task.name,
        task.title,
        task.points,
        earned=0,
        state=TaskState.NOT_STARTED,
        passed=0,
        planned=planned,
        failure=failure,
        where=where,
    )


def _task(task: Task, result: TaskResult | None, report: Report) -> TaskMark:
    if result is None:
        error = _error(task, report)
        return _unmarked(task, report.planned.get(task.name, 0), error["message"], error["where"])
    first = result.first_failure
    # All of them: a run that the code ended after the first skipped test must not cost nothing.
    skipped = result.state is TaskState.SKIPPED and result.complete
    return TaskMark(
        name=task.name,
        title=task.title,
        points=0 if skipped else task.points,
        earned=0 if result.shortcuts else earned(task, result),
        state=result.state,
        passed=result.count(TaskState.PASSED),
        planned=result.planned,
        failure=_failure(result),
        sentence=first.sentence if first else "",
        where=first.where if first else "",
        needs=_needs(result),
        shortcuts=result.shortcuts,
    )


def _error(task: Task, report: Report) -> dict[str, str]:
    """Why no test of the task was run: its file couldn't be read, or the run had ended."""
    files = f"week_{task.week}/test_day_{task.day}.py", f"week_{task.week}/test_day_{task.day}_mlx.py"
    unread = (error for error in report.errors if any(file in error["where"] for file in files))
    return next(unread, {"message": "its tests were not run", "where": ""})


def _failure(result: TaskResult) -> str:
    first = result.first_failure
    if first is not None:
        return first.message
    if not result.complete:
        return f"only {len(result.tests)} of its {result.planned} tests were run"
    if result.state is TaskState.SKIPPED:
        return result.tests[0].message
    if result.shortcuts:
        return f"it leaves its work to {' and '.join(result.shortcuts)}"
    return ""


def _needs(result: TaskResult) -> str:
    """The task whose stub was reached, where the state of this one comes from that."""
    if result.state is not TaskState.NOT_STARTED:
        return ""
    return next(
        (test.needs for test in result.tests if test.state is TaskState.NOT_STARTED and test.needs), ""
    )
