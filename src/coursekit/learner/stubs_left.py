"""What of a task the learner's files still hold as a stub."""

from __future__ import annotations

import re
from collections.abc import Container

from coursekit.errors import CourseError
from coursekit.lessons.outline import read_source, stubbed
from coursekit.manifest import FunctionRef, Lesson, Task
from coursekit.paths import Course
from coursekit.track_files import starter_file


def unwritten(course: Course, package: str, task: Task) -> tuple[FunctionRef, ...]:
    """The functions of ``task`` that are stubs in the learner's ``package``."""
    return tuple(ref for ref in task.implements if ref.qualname in _stubs(course, package, ref.file, task))


def has_own_code(course: Course, package: str, lesson: Lesson, borrowed: Container[str]) -> bool:
    """Whether some function of the day is no longer a stub, leaving out the tasks that are ``borrowed``."""
    return any(
        len(unwritten(course, package, task)) < len(task.implements)
        for task in lesson.tasks
        if task.name not in borrowed
    )


def _stubs(course: Course, package: str, file: str, task: Task) -> set[str]:
    path = starter_file(course, package, file)
    if not path.is_file():
        return set()
    source = read_source(path, path.name)
    try:
        return set(stubbed(source, path.name))
    except CourseError:
        # A slip in the file's syntax hides where the stubs are, but not their messages.
        left = len(re.findall(re.escape(task.label) + ": ", source))
        return {ref.qualname for ref in task.implements[:left] if ref.file == file}
