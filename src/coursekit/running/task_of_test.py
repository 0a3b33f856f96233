"""Which task a test belongs to: its file names the day, its own name the task."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.manifest import Manifest, Task, load_manifest
from coursekit.paths import PACKAGES, Course
from coursekit.running.results import TASK_TEST

WEEK_FOLDER = re.compile(r"week_(\d+)")
DAY_FILE = re.compile(r"test_day_(\d+)(_mlx)?\.py")


class TasksOfTests:
    """The tasks of a track, found by their tests; the manifest is read when the first day's test comes."""

    def __init__(self, course: Course, package: str) -> None:
        self._course, self._package = course, package

    @cached_property
    def manifest(self) -> Manifest:
        return load_manifest(self._course, self._package)

    def is_of_other_track(self, file: Path) -> bool:
        """Whether `file` tests a day that has other tests on this track. What is wrong with its name `find` says."""
        try:
            if self._day_of(file) is None:
                return False
        except CourseError:
            return False
        days = {
            self._course.tests / each.test_file
            for name in PACKAGES
            for each in self.manifest.on(name).lessons
        }
        return file in days and file not in {
            self._course.tests / each.test_file for each in self.manifest.lessons
        }

    def find(self, file: Path, name: str) -> Task | None:
        """The task of the test called `name` in `file`; None for a test outside the weeks' folders.

        Raises:
            CourseError: the file names no day, the test no task, or the course has no such task.
        """
        day = self._day_of(file)
        if day is None:
            return None
        match = TASK_TEST.fullmatch(name)
        if match is None:
            raise CourseError("a day's test is called test_task_<number>_<what it says>")
        return self.manifest.task(f"{day}.{match[1]}")

    def _day_of(self, file: Path) -> str | None:
        if not file.is_relative_to(self._course.tests):
            return None
        folder, *rest = file.relative_to(self._course.tests).parts
        week = WEEK_FOLDER.fullmatch(folder)
        if week is None:
            return None
        day = DAY_FILE.fullmatch("/".join(rest))
        if day is None:
            raise CourseError("tests of a week stand in test_day_<day>.py")
        return f"{week[1]}.{day[1]}"
