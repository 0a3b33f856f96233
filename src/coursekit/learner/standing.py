"""How far the learner is: the state of every task, from the recorded results and from the source itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from coursekit.errors import CourseError
from coursekit.learner.state import State
from coursekit.learner.stubs_left import has_own_code
from coursekit.lessons.outline import fingerprint, stub_message
from coursekit.lessons.package import Package
from coursekit.manifest import FunctionRef, Lesson, Manifest, Task
from coursekit.paths import Course
from coursekit.task_state import TaskState
from coursekit.track_files import solution_file, starter_file


class Standing(StrEnum):
    """Where a task stands. Begun is all that is written, at least in part, and has not passed yet."""

    NOT_STARTED = "not started"
    BEGUN = "begun"
    PASSED = "passed"
    BORROWED = "borrowed"
    SKIPPED = "can't run here"

    @property
    def is_done(self) -> bool:
        return self in (Standing.PASSED, Standing.BORROWED, Standing.SKIPPED)


@dataclass(frozen=True)
class DayStanding:
    """A day's tasks with their standing: those that the package has."""

    lesson: Lesson
    tasks: dict[Task, Standing]
    earned: int

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)


class Survey:
    """The standing of the whole course in one package; `problems` says which files can't be read."""

    def __init__(self, course: Course, manifest: Manifest, state: State, package: str) -> None:
        self.package = package
        self._state = state
        self._learner = Package(course.root, partial(starter_file, course, package))
        self._reference = Package(course.root, partial(solution_file, course, package))
        self.days = [self._day(lesson) for lesson in manifest.on(package).lessons]

    @property
    def problems(self) -> list[str]:
        return self._learner.problems()

    @property
    def points(self) -> int:
        return sum(day.points for day in self.days)

    @property
    def earned(self) -> int:
        return sum(day.earned for day in self.days)

    def next_task(self) -> tuple[Lesson, Task] | None:
        """The first task that is not done, with its day: from the day on that was caught up to, else of all."""
        names = [day.lesson.name for day in self.days]
        towards = self._state.towards.get(self.package)
        start = names.index(towards) if towards in names else 0
        for day in (*self.days[start:], *self.days[:start]):
            for task, standing in day.tasks.items():
                if not standing.is_done:
                    return day.lesson, task
        return None

    def _day(self, lesson: Lesson) -> DayStanding:
        tasks = {task: self._standing(task) for task in lesson.tasks if self._refs(task)}
        earned = sum(task.points for task, standing in tasks.items() if standing is Standing.PASSED)
        return DayStanding(lesson, tasks, earned)

    def _refs(self, task: Task) -> list[FunctionRef]:
        """The task's functions that the track has; that of MLX has only some."""
        return [ref for ref in task.implements if self._reference.find(ref) is not None]

    def _standing(self, task: Task) -> Standing:
        marks = [self._mark(ref) for ref in self._refs(task)]
        if all(mark is None for mark in marks):
            return Standing.NOT_STARTED
        if None in marks or "" in marks:
            return Standing.BEGUN
        if any(
            mark and self._state.is_borrowed(self.package, ref, mark)
            for ref, mark in zip(self._refs(task), marks, strict=True)
        ):
            return Standing.BORROWED
        result = self._state.result(self.package, task.name)
        by_state = {TaskState.PASSED: Standing.PASSED, TaskState.SKIPPED: Standing.SKIPPED}
        return by_state.get(result.state, Standing.BEGUN) if result else Standing.BEGUN

    def _mark(self, ref: FunctionRef) -> str | None:
        """The function's fingerprint; None for a stub or a missing function, "" where its file can't be read."""
        try:
            found = self._learner.find(ref)
        except CourseError:
            return ""
        return None if found is None or stub_message(found) is not None else fingerprint(found)


def borrowed_tasks(course: Course, manifest: Manifest, package: str) -> frozenset[str]:
    """The names of the tasks of which a function is still what was borrowed from the reference."""
    days = Survey(course, manifest, State.load(course), package).days
    return frozenset(
        task.name for day in days for task, standing in day.tasks.items() if standing is Standing.BORROWED
    )


def begun_and_next(course: Course, package: str, manifest: Manifest) -> tuple[Lesson, ...]:
    """Every day with code of the learner's own, and the one to go on with.

    That is the day that was caught up to, or the one after the last begun, whichever is later; the first day where
    there is neither.
    """
    try:
        borrowed = borrowed_tasks(course, manifest, package)
        towards = State.load(course).towards.get(package)
    except CourseError:
        borrowed, towards = frozenset(), None
    names = [lesson.name for lesson in manifest.lessons]
    begun = [lesson for lesson in manifest.lessons if has_own_code(course, package, lesson, borrowed)]
    following = names.index(begun[-1].name) + 1 if begun else 0
    following = max(following, names.index(towards) if towards in names else 0)
    return (*begun, *manifest.lessons[following : following + 1])
