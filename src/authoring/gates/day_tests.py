"""Which test functions a task has, read without running them."""

from __future__ import annotations

from authoring.gates.workers import tests_of_day
from coursekit.lessons.outline import functions, parse, read_source
from coursekit.manifest import Lesson, Task
from coursekit.paths import Course
from coursekit.running.results import TASK_TEST


def tests_of_task(course: Course, lesson: Lesson, task: Task) -> tuple[str, ...]:
    """The names of the task's test functions, in order; none where the day has no test file.

    Raises:
        CourseError: the day's test file is not Python.
    """
    path = tests_of_day(course, lesson)
    if not path.is_file():
        return ()
    name = path.relative_to(course.root).as_posix()
    found = (TASK_TEST.fullmatch(test) for test in functions(parse(read_source(path, name), name)))
    return tuple(match[0] for match in found if match and int(match[1]) == task.number)
