"""What each day of the course is: every `lesson.toml`, read and validated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.lessons.lesson import FunctionRef, Lesson, Task
from coursekit.lessons.lesson_file import LessonFile, Problem, day_folders
from coursekit.lessons.outline import classes, functions, parse, read_source
from coursekit.paths import Course
from coursekit.track_files import solution_file

__all__ = ["FunctionRef", "Lesson", "Manifest", "ManifestError", "Task", "list_tasks", "load_manifest"]


class ManifestError(CourseError):
    """Every problem found in the `lesson.toml` files, one a line, each with file and line."""


@dataclass(frozen=True)
class Manifest:
    """Every day of the course that exists, in order.

    It is the torch track's, unless it comes from `on`; then `whole` is the one that it comes from.
    """

    lessons: tuple[Lesson, ...]
    whole: Manifest | None = field(default=None, repr=False, compare=False)

    def on(self, package: str) -> Manifest:
        """The days as the track of ``package`` has them, whichever track's this one is."""
        whole = self.whole or self
        if package == Backend.TORCH.package:
            return whole
        return Manifest(tuple(lesson.on(package) for lesson in whole.lessons), whole)

    def tasks(self) -> Iterator[Task]:
        for lesson in self.lessons:
            yield from lesson.tasks

    def lesson(self, name: str) -> Lesson:
        """The day called, say, `1.3`.

        Raises:
            CourseError: there is no such day; the message lists those there are.
        """
        numbers = _numbers(name, 2, "day", "1.3")
        for lesson in self.lessons:
            if (lesson.week, lesson.day) == numbers:
                return lesson
        raise CourseError(f"there is no Day {name}; there are: {self._day_names()}")

    def task(self, name: str) -> Task:
        """The task called, say, `1.3.2`.

        Raises:
            CourseError: there is no such task; the message lists those of its day.
        """
        week, day, number = _numbers(name, 3, "task", "1.3.2")
        lesson = self.lesson(f"{week}.{day}")
        for task in lesson.tasks:
            if task.number == number:
                return task
        raise CourseError(f"Day {lesson.name} has no task {number}; it has: {list_tasks(lesson)}")

    def owner(self, ref: FunctionRef) -> Task | None:
        """The task that asks for a function; None for given code."""
        return self._owners.get(ref)

    def up_to(self, name: str) -> tuple[Lesson, ...]:
        """The days up to and including the one called, say, `1.5`."""
        last = self.lesson(name)
        return self.lessons[: self.lessons.index(last) + 1]

    def before(self, name: str) -> tuple[Lesson, ...]:
        """The days before the one called, say, `1.5`."""
        return self.up_to(name)[:-1]

    def needed(self, name: str) -> tuple[Lesson, ...]:
        """The days before the one called, say, `1.5`, that its tests reach, and those that these need in turn."""
        wanted = {name}
        for lesson in reversed(self.up_to(name)):
            if lesson.name in wanted:
                wanted.update(
                    [earlier.name for earlier in self.before(lesson.name)]
                    if lesson.needs is None
                    else lesson.needs
                )
        return tuple(lesson for lesson in self.before(name) if lesson.name in wanted)

    @cached_property
    def _owners(self) -> dict[FunctionRef, Task]:
        return {ref: task for task in self.tasks() for ref in task.implements}

    def _day_names(self) -> str:
        return ", ".join(lesson.name for lesson in self.lessons) or "none yet"


def list_tasks(lesson: Lesson) -> str:
    return "; ".join(f"{task.name} {task.title}" for task in lesson.tasks)


def _numbers(name: str, count: int, kind: str, example: str) -> tuple[int, ...]:
    parts = name.strip().split(".")
    if len(parts) != count or not all(part.isascii() and part.isdigit() for part in parts):
        raise CourseError(f"{name!r} names no {kind}: write it with dots, for example {example}")
    return tuple(int(part) for part in parts)


def load_manifest(course: Course, package: str = Backend.TORCH.package) -> Manifest:
    """Read every `lessons/week_W/day_D/lesson.toml` and validate it against the reference.

    Returns:
        The days as the track of ``package`` has them.

    Raises:
        ManifestError: something is missing, unknown or contradictory; all problems are listed.
    """
    files = [LessonFile(course, week, day, path) for week, day, path in day_folders(course)]
    lessons = [lesson for file in files if (lesson := file.read()) is not None]
    problems = [problem for file in files for problem in file.problems]
    problems += _claimed_twice(files) + _unknown_functions(course, files) + _unknown_needs(files)
    if problems:
        raise ManifestError("\n".join(str(problem) for problem in sorted(problems)))
    return Manifest(tuple(lessons)).on(package)


def _claimed_twice(files: list[LessonFile]) -> list[Problem]:
    first: dict[tuple[str, FunctionRef], Problem] = {}
    problems = []
    for claim in (claim for file in files for claim in file.claims):
        earlier = first.setdefault((claim.package, claim.ref), claim.at)
        if earlier is not claim.at:
            problems.append(claim.at.saying(f"{claim.ref} is claimed already at {earlier.where}"))
    return problems


def _unknown_needs(files: list[LessonFile]) -> list[Problem]:
    names = {f"{file.week}.{file.day}" for file in files}
    return [
        at.saying(f"needs {name!r}: there is no such day")
        for file in files
        for name, at in file.needed
        if name not in names
    ]


def _unknown_functions(course: Course, files: list[LessonFile]) -> list[Problem]:
    outlines: dict[tuple[str, str], _Outline] = {}
    problems = []
    for claim in (claim for file in files for claim in file.claims):
        key = claim.package, claim.ref.file
        outline = outlines.setdefault(key, _Outline(course, *key))
        if message := outline.refusal(claim.ref):
            problems.append(claim.at.saying(message))
    return problems


class _Outline:
    """What one file of the reference defines, parsed when first asked for."""

    def __init__(self, course: Course, package: str, file: str) -> None:
        self._path = solution_file(course, package, file)
        self._name = self._path.relative_to(course.root).as_posix()

    @cached_property
    def _definitions(self) -> tuple[dict[str, int], set[str]]:
        tree = parse(read_source(self._path, self._name), self._name)
        return {name: len(nodes) for name, nodes in functions(tree).items()}, set(classes(tree))

    def refusal(self, ref: FunctionRef) -> str | None:
        """Why a task can't claim this function; None where it can."""
        if not self._path.is_file():
            return f"{ref}: there is no file {self._name}"
        try:
            counts, class_names = self._definitions
        except CourseError as error:
            return str(error)
        if ref.qualname in class_names:
            return f"{ref} is a class: name its methods, such as {ref}.__call__"
        if ref.qualname not in counts:
            return f"{ref}: {self._name} defines no such function{_suggestion(ref.qualname, list(counts))}"
        if counts[ref.qualname] > 1:
            return f"{ref}: {self._name} defines it {counts[ref.qualname]} times; a task needs one definition"
        return None


def _suggestion(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; is it {close[0]}?" if close else ""
