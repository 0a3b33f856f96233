"""Which `tiny_llm` the import finds: the learner's package or the reference."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from coursekit.errors import CourseError
from coursekit.paths import Course

if TYPE_CHECKING:
    from coursekit.manifest import Task

STUB_MESSAGE = re.compile(r"Week \d+ Day \d+ Task \d+: ")


class Impl(StrEnum):
    LEARNER = "learner"
    SOLUTION = "solution"


def select(course: Course, impl: Impl) -> None:
    """Put the chosen package's folder first on the import path. Call it before anything imports ``tiny_llm``."""
    folder = course.solution() if impl is Impl.SOLUTION else course.starter()
    sys.path.insert(0, str(folder.parent))


@contextmanager
def explain_stubs(course: Course) -> Iterator[None]:
    """Turn a stub that was reached into advice: which task of the course comes first.

    Raises:
        CourseError: instead of a stub's NotImplementedError.
    """
    try:
        yield
    except NotImplementedError as stub:
        if not STUB_MESSAGE.match(str(stub)):
            raise
        raise CourseError(_advice(course, str(stub))) from None


def _advice(course: Course, reached: str) -> str:
    first = first_stub(course)
    if first is None:
        return f"your code is not there yet: {reached}"
    return (
        f"this needs code that you have not written yet ({reached}). "
        f"First comes {first.label}, {first.title}: pdm run test --week {first.week} --day {first.day} "
        "(or look at the reference at work: --impl solution)"
    )


def first_stub(course: Course) -> Task | None:
    """The first task of the course of which a function is still a stub, or None."""
    from coursekit.manifest import load_manifest
    from coursekit.source import stubbed

    stubs: dict[str, set[str]] = {}
    for task in load_manifest(course).tasks():
        for ref in task.implements:
            path = course.starter() / ref.file
            if ref.file not in stubs:
                stubs[ref.file] = set(stubbed(path.read_text(encoding="utf-8"))) if path.is_file() else set()
            if ref.qualname in stubs[ref.file]:
                return task
    return None
