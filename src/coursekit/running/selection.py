"""What `pdm run test` is asked to run: days, a task, tests by name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.learner.standing import begun_and_next
from coursekit.manifest import Lesson, Manifest
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from coursekit.tracks import covered, covers, track_refusal

NAME = re.compile(r"\d+(\.\d+){0,2}")


@dataclass(frozen=True)
class Asked:
    """What the learner named.

    week, day: the days; no week stands for every day begun, no day for the whole week.
    arguments: pytest's, a choice of tests by task or name among them.
    """

    week: int | None
    day: int | None
    arguments: tuple[str, ...] = ()


def read_arguments(
    course: Course,
    manifest: Manifest,
    words: Sequence[str],
    week: int | None = None,
    day: int | None = None,
    keyword: str | None = None,
) -> Asked:
    """Read the words of a command: perhaps a week, day or task ("1", "1.3", "1.3.2"), then pytest's arguments.

    Args:
        course: what pytest's arguments may name a file of.
        manifest: the days and tasks that there are.
        words: what stands outside the options.
        week: of `--week`.
        day: of `--day`.
        keyword: of `-k`.

    Raises:
        CourseError: a word names nothing, there is no such day or task, or two ways of naming one are mixed.
    """
    name, rest = _name_first(course, list(words))
    if name is not None and (week, day) != (None, None):
        raise CourseError(f"name the day once: {name}, or --week and --day")
    filters = []
    if name is not None:
        numbers = [int(part) for part in name.split(".")]
        week, day = numbers[0], numbers[1] if len(numbers) > 1 else None
        if len(numbers) > 2:
            filters.append(f"{manifest.task(name).id}_")
    if keyword is not None:
        filters.append(f"({keyword})" if filters else keyword)
    if filters and "-k" in rest:
        raise CourseError("give -k once, before the --: pdm run test 1.3.2 -k NAME")
    chosen = ["-k", " and ".join(filters)] if filters else []
    return Asked(week, day, (*chosen, *rest))


def _name_first(course: Course, words: list[str]) -> tuple[str | None, list[str]]:
    """The name of a day or task, if the words begin with one, and the other words."""
    if not words or words[0].startswith("-") or (course.root / words[0].partition("::")[0]).exists():
        return None, words
    name, *rest = words
    if not NAME.fullmatch(name):
        raise CourseError(
            f"{name!r} names no day and no task: write it with dots, for example 1.3 or 1.3.2; "
            "-k chooses tests by a word of their names"
        )
    if rest and NAME.fullmatch(rest[0]):
        raise CourseError(f"name one day or one task at a time, {name} or {rest[0]}; one number is a week")
    return name, rest


def select(
    course: Course,
    manifest: Manifest,
    week: int | None,
    day: int | None,
    impl: Impl = Impl.LEARNER,
    backend: Backend = Backend.TORCH,
) -> tuple[Lesson, ...]:
    """The days to test.

    Raises:
        CourseError: there is no such week or day, or the backend's track does not cover it.
    """
    if day is not None and week is None:
        raise CourseError(f"--day {day} of which week? Name it: pdm run test 1.{day}")
    package = backend.package
    if week is None:
        track = Manifest(covered(course, package, manifest))
        chosen = track.lessons if impl is Impl.SOLUTION else begun_and_next(course, package, track)
    else:
        asked = lessons_of(manifest, week, day)
        chosen = tuple(lesson for lesson in asked if covers(course, package, lesson))
    if not chosen:
        raise CourseError(
            track_refusal(course, package, manifest) if manifest.lessons else "the course has no day yet"
        )
    return chosen


def lessons_of(manifest: Manifest, week: int, day: int | None) -> tuple[Lesson, ...]:
    """The day, or every day of the week.

    Raises:
        CourseError: there is none; the message lists those there are.
    """
    weeks = sorted({lesson.week for lesson in manifest.lessons})
    if week not in weeks:
        there = "; ".join(f"Week {number} ({_days_of(manifest, number)})" for number in weeks) or "none yet"
        raise CourseError(f"there is no Week {week}; there are: {there}")
    if day is not None:
        return (manifest.lesson(f"{week}.{day}"),)
    return tuple(lesson for lesson in manifest.lessons if lesson.week == week)


def _days_of(manifest: Manifest, week: int) -> str:
    days = [str(lesson.day) for lesson in manifest.lessons if lesson.week == week]
    return f"{'Day' if len(days) == 1 else 'Days'} {', '.join(days)}"


def nothing_matches(arguments: Sequence[str], lessons: tuple[Lesson, ...]) -> str:
    """What to say where pytest found no test for its arguments."""
    asked = " ".join(arguments) or "this"
    if len(lessons) > 1:
        days = ", ".join(
            f"{lesson.name} ({', '.join(task.id for task in lesson.tasks)})" for lesson in lessons
        )
        return f"{asked} matches no test; there are Days {days}"
    tasks = "; ".join(f"{task.id} {task.title}" for task in lessons[0].tasks)
    return f"{asked} matches no test of Day {lessons[0].name}; there are: {tasks}"
