"""What the grader will see of each task: from a run in the grader's way, or from the records of earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from coursekit.learner.state import Result, State
from coursekit.manifest import Lesson, Task
from coursekit.paths import Course
from coursekit.running.board import earned
from coursekit.running.results import Report, TaskResult
from coursekit.task_state import TaskState
from grading.handing_in.work import Work

SECOND = 1.0
"""Records of a run are kept to the second."""


@dataclass(frozen=True)
class Outlook:
    """One task: ``state`` is None where nothing is known of it; ``note`` says what else there is to know."""

    task: Task
    state: TaskState | None
    earned: int
    note: str = ""

    @property
    def points(self) -> int:
        """What can be earned: nothing where the tests can't run on this machine."""
        return 0 if self.state is TaskState.SKIPPED else self.task.points


def from_report(work: Work, lessons: Sequence[Lesson], report: Report, state: State) -> list[Outlook]:
    """Each task of these days, as a run in the grader's way has found it."""
    return [
        _judged(work, task, report.tasks.get(task.name), state.result(work.package, task.name))
        for lesson in lessons
        for task in lesson.tasks
    ]


def from_records(course: Course, work: Work, lessons: Sequence[Lesson], state: State) -> list[Outlook]:
    """Each task of these days, as the last recorded run has left it."""
    return [
        _recorded(course, work, task, state.result(work.package, task.name))
        for lesson in lessons
        for task in lesson.tasks
    ]


def _judged(work: Work, task: Task, result: TaskResult | None, recorded: Result | None) -> Outlook:
    if result is None:
        return Outlook(task, None, 0, "its tests gave no result")
    if result.shortcuts:
        return Outlook(
            task, result.state, 0, f"calls {' and '.join(result.shortcuts)}, which the task forbids"
        )
    failure = result.first_failure
    if result.state is TaskState.NOT_STARTED:
        needs = failure.needs if failure else ""
        return Outlook(task, result.state, 0, f"needs {needs}" if needs else _left(work, task))
    if not result.complete:
        return Outlook(task, result.state, 0, f"only {len(result.tests)} of its {result.planned} tests ran")
    passed_before = recorded is not None and recorded.state is TaskState.PASSED
    if result.state is TaskState.SKIPPED:
        return Outlook(task, result.state, 0, result.tests[0].message)
    surprise = "passed in your last run" if passed_before and result.state is not TaskState.PASSED else ""
    return Outlook(task, result.state, earned(task, result), surprise)


def _recorded(course: Course, work: Work, task: Task, result: Result | None) -> Outlook:
    if damaged := [file for file in _files(work, task) if file in work.damaged]:
        return Outlook(task, None, 0, f"{damaged[0]} can't be read")
    if left := _left(work, task):
        return Outlook(task, TaskState.NOT_STARTED, 0, left)
    if result is None:
        return Outlook(task, None, 0, "not tested yet")
    note = "your files have changed since" if _changed_since(course, work, task, result) else ""
    return Outlook(task, result.state, result.points, note)


def _left(work: Work, task: Task) -> str:
    left, asked = len(work.unwritten(task)), len(work.functions_of(task))
    if not left or asked == 1:
        return "a stub" if left else ""
    return "all stubs" if left == asked else f"{left} of {asked} functions are stubs"


def _changed_since(course: Course, work: Work, task: Task, result: Result) -> bool:
    """Whether a file of the task was written after the run; a record without a time that can be read is old."""
    try:
        then = datetime.fromisoformat(result.when).timestamp()
    except ValueError:
        return True
    paths = [course.starter(work.package) / file for file in _files(work, task)]
    return max(path.stat().st_mtime for path in paths) >= then + SECOND


def _files(work: Work, task: Task) -> list[str]:
    return sorted({ref.file for ref in work.functions_of(task)})
