"""Running a program on the learner's code or on the reference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.lessons.outline import read_source, stubbed
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from coursekit.running.stubs import Stub, reached_stub
from coursekit.track_files import starter_file

if TYPE_CHECKING:
    from coursekit.manifest import Task


@dataclass(frozen=True)
class WayAround:
    """An option with which a program does without the code of some day."""

    option: str
    needs: tuple[int, int]  # week and day: with it, the program needs the code up to there


WHOSE = {
    Impl.LEARNER: ("your code", "src/tiny_llm/"),
    Impl.SOLUTION: ("the reference", "solutions/tiny_llm/"),
}
"""What an implementation is called, and where it lies."""

WaysAround = Mapping[tuple[int, int], WayAround]
"""The week and day to do without -> how."""


@contextmanager
def explain_stubs(
    course: Course, ways_around: WaysAround | None = None, package: str = Backend.TORCH.package
) -> Iterator[None]:
    """Turn a stub that was reached into advice: which task of the course comes first, and what runs already.

    Args:
        course: the course.
        ways_around: options that do without some day's code.
        package: of the track whose code runs.

    Raises:
        CourseError: instead of a stub's NotImplementedError.
    """
    try:
        yield
    except NotImplementedError as error:
        stub = reached_stub(error)
        if stub is None:
            raise
        raise CourseError(_advice(course, stub, ways_around or {}, package)) from None


def _advice(course: Course, stub: Stub, ways_around: WaysAround, package: str) -> str:
    first = first_stub(course, package=package)
    if first is None:
        return f"your code is not there yet: {stub.message}"
    comes_first = "" if stub.message == first.stub_message else f"First comes {first.label}, {first.title}. "
    way = ways_around.get((stub.week, stub.day))
    command = f"{first.test_command}{Backend.of(package).option}"
    runs_already = ""
    if way is not None and (first.week, first.day) > way.needs:
        runs_already = f". What you have runs with {way.option}"
    return (
        f"this needs code that you have not written yet ({stub.message}). {comes_first}"
        f"Test it with: {command} (or look at the reference at work: --impl solution){runs_already}"
    )


def require_written(course: Course, impl: Impl, day: tuple[int, int], needed: bool = False) -> None:
    """Refuse to go on while a task of a day is a stub: for programs that run it where no stub can be reported.

    Args:
        course: the course.
        impl: whose code runs; nothing is missing in the reference.
        day: its week and its number there.
        needed: whether the tasks of the days that it names as needed count as well.

    Raises:
        NotImplementedError: as the first of the stubs would raise it.
    """
    from coursekit.manifest import load_manifest

    if impl is not Impl.LEARNER:
        return
    name = f"{day[0]}.{day[1]}"
    earlier = (load_manifest(course).lesson(name).needs or ()) if needed else ()
    task = first_stub(course, (*earlier, name))
    if task is not None:
        raise NotImplementedError(task.stub_message)


def first_stub(
    course: Course, days: Collection[str] | None = None, package: str = Backend.TORCH.package
) -> Task | None:
    """The first task of the course, or of some of its days, of which a function is still a stub, or None."""
    from coursekit.manifest import load_manifest

    stubs: dict[str, set[str]] = {}
    for task in load_manifest(course, package).tasks():
        if days is not None and f"{task.week}.{task.day}" not in days:
            continue
        for ref in task.implements:
            path = starter_file(course, package, ref.file)
            if ref.file not in stubs:
                name = path.relative_to(course.root).as_posix()
                stubs[ref.file] = set(stubbed(read_source(path, name), name)) if path.is_file() else set()
            if ref.qualname in stubs[ref.file]:
                return task
    return None
