"""Running a program on the learner's code or on the reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coursekit.errors import CourseError
from coursekit.lessons.outline import read_source, stubbed
from coursekit.paths import Course
from coursekit.running.stubs import reached_stub

if TYPE_CHECKING:
    from coursekit.manifest import Task


@contextmanager
def explain_stubs(course: Course) -> Iterator[None]:
    """Turn a stub that was reached into advice: which task of the course comes first.

    Raises:
        CourseError: instead of a stub's NotImplementedError.
    """
    try:
        yield
    except NotImplementedError as error:
        if reached_stub(error) is None:
            raise
        raise CourseError(_advice(course, str(error))) from None


def _advice(course: Course, reached: str) -> str:
    first = first_stub(course)
    if first is None:
        return f"your code is not there yet: {reached}"
    comes_first = "" if reached == first.stub_message else f"First comes {first.label}, {first.title}. "
    return (
        f"this needs code that you have not written yet ({reached}). {comes_first}"
        f"Test it with: {first.test_command} (or look at the reference at work: --impl solution)"
    )


def first_stub(course: Course) -> Task | None:
    """The first task of the course of which a function is still a stub, or None."""
    from coursekit.manifest import load_manifest

    stubs: dict[str, set[str]] = {}
    for task in load_manifest(course).tasks():
        for ref in task.implements:
            path = course.starter() / ref.file
            if ref.file not in stubs:
                name = path.relative_to(course.root).as_posix()
                stubs[ref.file] = set(stubbed(read_source(path, name), name)) if path.is_file() else set()
            if ref.qualname in stubs[ref.file]:
                return task
    return None
