"""`pdm run reset`: puts stubs back in place of the learner's code, after keeping a copy of it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from coursekit.backends import Backend
from coursekit.cli import REFUSED
from coursekit.editing.report import print_functions
from coursekit.editing.transplant import Learner
from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.learner.copies import save_copies
from coursekit.learner.standing import Standing, Survey
from coursekit.learner.state import State
from coursekit.manifest import FunctionRef, Lesson, Manifest, Task, list_tasks, load_manifest
from coursekit.paths import Course

EXPLANATION = """reset puts stubs back, so that you can write a day or a task again. Your files are copied first.

  pdm run reset 1.3              the whole day
  pdm run reset 1.3.2            one task
  pdm run reset 1.3 --borrowed   only what catch-up borrowed on that day
"""


def reset(
    name: Annotated[
        str | None, typer.Argument(metavar="[DAY]", help="A day such as 1.3, or a task such as 1.3.2.")
    ] = None,
    week: Annotated[int | None, typer.Option(min=1, help="The week of the day.")] = None,
    day: Annotated[int | None, typer.Option(min=1, help="The day to put back.")] = None,
    task: Annotated[int | None, typer.Option(min=1, help="Only this task of the day.")] = None,
    borrowed: Annotated[
        bool, typer.Option("--borrowed", help="Only what is still as catch-up borrowed it.")
    ] = False,
    backend: Annotated[
        Backend, typer.Option(help="Whose package: torch is tiny_llm, mlx is tiny_llm_mlx.")
    ] = Backend.TORCH,
) -> None:
    """Put the stubs of a day, or of one of its tasks, back, so that you can write it again.

    Your files are copied to .course/backups first, and `pdm run restore` brings them back.
    The rest of each stays as it is.
    """
    course = Course.find()
    manifest = load_manifest(course, backend.package)
    if (name, week, day, task) == (None, None, None, None):
        _explain(course, manifest, backend.package)
        raise typer.Exit(REFUSED)
    lesson, tasks = _chosen(manifest, name, week, day, task)
    what = f"Day {lesson.name}" if len(tasks) == len(lesson.tasks) else tasks[0].label
    learner, state = Learner(course, backend.package, manifest), State.load(course)
    there = {each: [ref for ref in each.implements if learner.should_have(ref)] for each in tasks}
    if not any(there.values()):
        raise CourseError(
            f"{backend.package} has nothing of Day {lesson.name}: leave --backend {backend} out"
        )
    written = {each: [ref for ref in refs if not learner.has_stub(ref)] for each, refs in there.items()}
    if borrowed:
        written = {each: _borrowed(learner, state, refs) for each, refs in written.items()}
    changed = [ref for refs in written.values() for ref in refs]
    console = Console(highlight=False, soft_wrap=True)
    if not changed:
        console.print(
            f"Nothing to put back: {what} holds {'nothing borrowed' if borrowed else 'only stubs'}."
        )
        return
    plan = learner.put_stubs(changed)
    copies = save_copies(course, plan.contents, f"reset {what}", state)
    write_files(plan.contents)
    with State.changing(course) as state:
        for each, refs in written.items():
            if refs:
                state.forget(backend.package, each.name, refs if borrowed else there[each])
    console.print(f"Stubs are back in {what}:")
    print_functions(console, course, backend.package, written)
    console.print()
    for added in plan.added:
        console.print(f"Was missing, is back: {added}", markup=False)
    if copies:
        console.print(f"Your code as it was:  {copies.relative_to(course.root).as_posix()}", markup=False)
        console.print(f"To have it back:      pdm run restore {copies.name}", markup=False)
    console.print(f"Begin again:          {lesson.test_command}{backend.option}", markup=False)


def _chosen(
    manifest: Manifest, name: str | None, week: int | None, day: int | None, number: int | None
) -> tuple[Lesson, list[Task]]:
    if name is not None:
        if (week, day, number) != (None, None, None):
            raise CourseError(f"name the day once: {name}, or --week and --day")
        if name.count(".") == 2:
            chosen = manifest.task(name)
            return manifest.lesson(f"{chosen.week}.{chosen.day}"), [chosen]
        lesson = manifest.lesson(name)
    elif week is None or day is None:
        raise CourseError("which day? Name it: pdm run reset 1.3, or a task of it: pdm run reset 1.3.2")
    else:
        lesson = manifest.lesson(f"{week}.{day}")
    tasks = [task for task in lesson.tasks if number in (None, task.number)]
    if not tasks:
        raise CourseError(f"Day {lesson.name} has no task {number}; it has: {list_tasks(lesson)}")
    return lesson, tasks


def _borrowed(learner: Learner, state: State, refs: list[FunctionRef]) -> list[FunctionRef]:
    marks = {ref: learner.mark(ref) for ref in refs}
    return [ref for ref, mark in marks.items() if mark and state.is_borrowed(learner.package, ref, mark)]


def _explain(course: Course, manifest: Manifest, package: str) -> None:
    days = Survey(course, manifest, State.load(course), package).days
    own = (Standing.BEGUN, Standing.PASSED, Standing.SKIPPED)
    console = Console(highlight=False, soft_wrap=True)
    console.print(EXPLANATION)
    for title, wanted in (
        ("Days with code of yours", own),
        ("Days with borrowed code", (Standing.BORROWED,)),
    ):
        names = [day.lesson.name for day in days if any(each in wanted for each in day.tasks.values())]
        console.print(f"{title}: {', '.join(names) or 'none'}")
    console.print("Nothing was changed.")
