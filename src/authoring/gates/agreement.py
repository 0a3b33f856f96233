"""Gate: manifest, tests, book and README agree.

The manifest itself is validated as it is read (every task has three hints, every function exists and is one task's).
The book's Python is run and its figures are redrawn by the suite, which the reference gate runs.
"""

from __future__ import annotations

from authoring.book.agreement import book_problems, read_pages
from authoring.gates.day_tests import tests_of_task
from authoring.gates.gate import Context, Findings
from authoring.gates.tracks import tracks_of
from authoring.gates.workers import tests_of_day
from authoring.progress import count


def agreement(context: Context) -> Findings:
    """Read the lessons, the names of the tests, the book and the README, and hold them against one another."""
    course = context.course
    lessons = [each for lesson in context.manifest.lessons for each in tracks_of(lesson)]
    tests = {
        (lesson.test_file, task.name): tests_of_task(course, lesson, task)
        for lesson in lessons
        for task in lesson.tasks
    }
    problems = [
        f"{task.name} {task.title} has no test: add test_{task.id}_<what it says> to "
        f"{tests_of_day(course, lesson).relative_to(course.root).as_posix()}"
        for lesson in lessons
        for task in lesson.tasks
        if not tests[lesson.test_file, task.name]
    ]
    problems += book_problems(course, context.manifest)
    looked_at = ", ".join(
        [
            count(len(context.manifest.lessons), "day"),
            count(len({task for _, task in tests}), "task"),
            count(sum(map(len, tests.values())), "test function"),
            count(len(read_pages(course)), "page"),
        ]
    )
    return Findings(looked_at, problems)
