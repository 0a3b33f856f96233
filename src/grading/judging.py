"""Runs the tests of some days against one learner's package, which lives in processes of its own."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.interrupts import INTERRUPTED
from coursekit.manifest import Lesson
from coursekit.paths import Course
from coursekit.running.pytest_process import INTERNAL_ERROR, USAGE_ERROR, refusal, run_pytest
from coursekit.running.results import Report
from grading.drawing import number_of
from grading.sandbox.choosing import choose
from grading.sandbox.isolation import Isolation


@dataclass(frozen=True)
class Judged:
    """What the tests found, and the name of the isolation that was in force."""

    report: Report
    isolation: str


def judge(
    course: Course,
    package: Path,
    lessons: Sequence[Lesson],
    seed: str,
    backend: Backend,
    without_isolation: bool = False,
) -> Judged:
    """Run the tests of the lessons in a process of their own.

    Args:
        course: whose tests.
        package: the folder that holds the learner's ``tiny_llm`` (their files over a fresh starter).
        lessons: the days.
        seed: from which random inputs are drawn; the empty text leaves them as in the learner's own runs.
        backend: the framework of the learner's arrays.
        without_isolation: go on with limits only where there is no isolation.

    Raises:
        CourseError: there is no isolation, or the tests could not be run: that says nothing about the code.
        KeyboardInterrupt: everything that was started has ended.
    """
    isolation = isolation_here(without_isolation)
    with tempfile.TemporaryDirectory(prefix="tiny-llm-judge-") as name:
        secret = Path(name) / "secret"
        secret.touch(mode=0o600)
        secret.write_text(seed, encoding="utf-8")
        arguments = ["-p", "grading.plugin", "--package-folder", str(package), "--draw", str(secret)]
        arguments += ["--isolation", isolation.name, "--backend", str(backend)]
        arguments += [f"--hypothesis-seed={number_of(seed)}"] if seed else []
        outcome = run_pytest(course, [*arguments, *map(str, _files(course, lessons))], quiet=True)
    if outcome.code == INTERRUPTED:
        raise KeyboardInterrupt
    if outcome.report is None or outcome.code in (INTERNAL_ERROR, USAGE_ERROR):
        raise refusal(outcome)
    return Judged(outcome.report, isolation.name)


@functools.cache
def isolation_here(without: bool = False) -> Isolation:
    """The isolation that this process judges with, found by trying it once.

    Args:
        without: take limits only where there is none.

    Raises:
        CourseError: there is none, with the reasons and the way out.
    """
    try:
        return choose(without)
    except CourseError as error:
        if without:
            raise
        raise CourseError(
            f"{error}. Where you trust the code, --without-isolation grades all the same"
        ) from error


def _files(course: Course, lessons: Sequence[Lesson]) -> list[Path]:
    files = [course.tests / lesson.test_file for lesson in lessons]
    for file in files:
        if not file.is_file():
            raise CourseError(f"{file.relative_to(course.root)} is not there: `git restore` brings it back")
    return files
