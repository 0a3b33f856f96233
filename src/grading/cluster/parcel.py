"""What travels between the grader and a worker, which share no disk: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from grading.running.fingerprints import course_fingerprint


@dataclass(frozen=True)
class Days:
    """What is graded: the names of the days, and the framework."""

    names: tuple[str, ...]
    backend: Backend

    def fingerprint(self, course: Course) -> str:
        """The fingerprint of a checkout for these days.

        Raises:
            CourseError: it doesn't have one of the days, or can't be read.
        """
        manifest = load_manifest(course, self.backend.package)
        known = {lesson.name: lesson for lesson in manifest.lessons}
        missing = [name for name in self.names if name not in known]
        if missing:
            raise CourseError(f"there is no Day {missing[0]} in its checkout")
        return course_fingerprint(course, [known[name] for name in self.names], self.backend)


@dataclass(frozen=True)
class Parcel:
    """One submission: its files by their paths within a folder, but not whose it is.

    ``course`` is the fingerprint that the worker's checkout must have. Dask logs the ``repr`` of what a task gets,
    so neither the seed nor the files are in it.
    """

    days: Days
    course: str
    draw: str
    seed: str = field(repr=False)
    files: Mapping[str, bytes] = field(repr=False)
    without_isolation: bool = False


@dataclass(frozen=True)
class Graded:
    """The exit code of the process that has graded, and the marks as JSON, without the learner."""

    code: int
    marks: bytes = field(repr=False)
