"""`pdm run reset`: puts stubs back in place of the learner's code, after keeping a copy of it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from coursekit.backends import Backend
from coursekit.editing.report import print_functions
from coursekit.editing.transplant import Learner
from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.learner.state import State, save_copies
from coursekit.manifest import Lesson, Task, list_tasks, load_manifest
from coursekit.paths import Course


def reset(
    week: Annotated[int, typer.Option(min=1, help="The week of the day.")],
    day: Annotated[int, typer.Option(min=1, help="The day to put back.")],
    task: Annotated[int | None, typer.Option(min=1, help="Only this task of the day.")] = None,
    backend: Annotated[
        Backend, typer.Option(help="Whose package: torch is tiny_llm, mlx is tiny_llm_mlx.")
    ] = Backend.TORCH,
) -> None:
    """Put the stubs of a day, or of one of its tasks, back, so that you can write it again.

    Your files are copied to .course/backups first. The rest of each stays as it is.
    """
    course = Course.find()
    manifest = load_manifest(course)
    lesson = manifest.lesson(f"{week}.{day}")
    tasks = _chosen(lesson, task)
    learner = Learner(course, backend.package, manifest)
    there = {each: [ref for ref in each.implements if learner.should_have(ref)] for each in tasks}
    if not any(there.values()):
        raise CourseError(
            f"{backend.package} has nothing of Day {lesson.name}: leave --backend {backend} out"
        )
    written = {each: [ref for ref in refs if not learner.has_stub(ref)] for each, refs in there.items()}
    changed = [ref for refs in written.values() for ref in refs]
    console = Console(highlight=False, soft_wrap=True)
    if not changed:
        console.print(f"Nothing to put back: {_what(lesson, task)} holds only stubs.")
        return
    plan = learner.put_stubs(changed)
    copies = save_copies(course, plan.contents)
    state = State.load(course)
    write_files(plan.contents)
    for each, refs in there.items():
        if written[each]:
            state.forget(backend.package, each.name, refs)
    state.save()
    console.print(f"Stubs are back in {_what(lesson, task)}:")
    print_functions(console, course, backend.package, written)
    console.print()
    for what in plan.added:
        console.print(f"Was missing, is back: {what}", markup=False)
    if copies:
        console.print(f"Your code as it was:  {copies.relative_to(course.root).as_posix()}", markup=False)
    console.print(f"Begin again:          {lesson.test_command}{backend.option}", markup=False)


def _chosen(lesson: Lesson, number: int | None) -> list[Task]:
    chosen = [task for task in lesson.tasks if number in (None, task.number)]
    if not chosen:
        raise CourseError(f"Day {lesson.name} has no task {number}; it has: {list_tasks(lesson)}")
    return chosen


def _what(lesson: Lesson, number: int | None) -> str:
    return f"Day {lesson.name}" if number is None else f"Day {lesson.name} Task {number}"
