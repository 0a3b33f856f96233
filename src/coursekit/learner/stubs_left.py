"""What of a task the learner's files still hold as a stub."""

from __future__ import annotations

import re

from coursekit.errors import CourseError
from coursekit.lessons.outline import read_source, stubbed
from coursekit.manifest import FunctionRef, Lesson, Manifest, Task
from coursekit.paths import Course


def unwritten(course: Course, package: str, task: Task) -> tuple[FunctionRef, ...]:
    """The functions of ``task`` that are stubs in the learner's ``package``."""
    return tuple(ref for ref in task.implements if ref.qualname in _stubs(course, package, ref.file, task))


def is_begun(course: Course, package: str, lesson: Lesson) -> bool:
    """Whether some function of the day is no longer a stub."""
    return any(len(unwritten(course, package, task)) < len(task.implements) for task in lesson.tasks)


def begun_and_next(course: Course, package: str, manifest: Manifest) -> tuple[Lesson, ...]:
    """Every day that is begun, and the first after the last of them; the first day where none is."""
    begun = [lesson for lesson in manifest.lessons if is_begun(course, package, lesson)]
    after = manifest.lessons.index(begun[-1]) + 1 if begun else 0
    return (*begun, *manifest.lessons[after : after + 1])


def _stubs(course: Course, package: str, file: str, task: Task) -> set[str]:
    path = course.starter(package) / file
    if not path.is_file():
        return set()
    source = read_source(path, path.name)
    try:
        return set(stubbed(source, path.name))
    except CourseError:
        # A slip in the file's syntax hides where the stubs are, but not their messages.
        left = len(re.findall(re.escape(task.label) + ": ", source))
        return {ref.qualname for ref in task.implements[:left] if ref.file == file}
