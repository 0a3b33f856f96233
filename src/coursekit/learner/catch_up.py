"""`pdm run catch-up`: borrows from the reference what earlier days still lack."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from coursekit.backends import Backend
from coursekit.editing.report import print_functions
from coursekit.editing.transplant import Learner
from coursekit.files import write_files
from coursekit.learner.copies import save_copies
from coursekit.learner.state import State
from coursekit.manifest import FunctionRef, Lesson, Task, load_manifest
from coursekit.paths import Course
from coursekit.task_state import TaskState
from coursekit.tracks import name_days

FAILING = (TaskState.WRONG, TaskState.CRASHED)


def catch_up(
    to: Annotated[
        str,
        typer.Option(help="The day that you want to work on, for example 1.5; days before it are filled in."),
    ],
    everything: Annotated[
        bool,
        typer.Option("--all", help="Borrow from all earlier days, not only from those that the day needs."),
    ] = False,
    failing: Annotated[
        bool, typer.Option("--failing", help="Also replace tasks whose last test run went wrong or crashed.")
    ] = False,
    backend: Annotated[
        Backend, typer.Option(help="Whose package: torch is tiny_llm, mlx is tiny_llm_mlx.")
    ] = Backend.TORCH,
) -> None:
    """Fill in, with the reference's code, the stubs of the earlier days that a day needs.

    What you have written stays, and your files are copied to .course/backups first.

    `pdm run progress` shows what is borrowed. It earns no points until you write it
    yourself; `pdm run reset` puts its stubs back for that.
    """
    course = Course.find()
    manifest = load_manifest(course, backend.package)
    lesson, earlier = manifest.lesson(to), manifest.before(to)
    needed = earlier if everything else manifest.needed(to)
    package = backend.package
    learner, state = Learner(course, package, manifest), State.load(course)
    lacking = _lacking(learner, state, needed, failing)
    spared = tuple(day for day in earlier if day not in needed and _lacking(learner, state, (day,), False))
    console = Console(highlight=False, soft_wrap=True)
    if not lacking:
        which = f"the days that {lesson.name} needs" if spared else f"the days before {lesson.name}"
        console.print(f"Nothing to borrow: {which} have no stubs left.")
        console.print(f"Go on: {lesson.test_command}{backend.option}", markup=False)
        return
    plan = learner.put_reference([ref for refs in lacking.values() for ref in refs])
    copies = save_copies(course, plan.contents, f"catch-up --to {lesson.name}", state)
    # First the record, then the files: a record of code that never came is harmless, the reverse is not.
    with State.changing(course) as state:
        for task, refs in lacking.items():
            state.forget(package, task.name, refs)
            for ref in refs:
                state.borrow(package, ref, learner.reference_text(ref.file))
        state.towards[package] = lesson.name
    write_files(plan.contents)
    console.print(f"Borrowed from the reference, so that you can work on Day {lesson.name}:")
    print_functions(console, course, package, lacking)
    console.print()
    for what in plan.added:
        console.print(f"Was missing, was added:  {what}", markup=False)
    if spared:
        days = name_days(spared, manifest)
        console.print(
            f"Still stubs:             {days}, which Day {lesson.name} can do without (--all borrows them)"
        )
    if copies:
        console.print(f"Your files as they were: {copies.relative_to(course.root).as_posix()}", markup=False)
    console.print(f"Go on:                   {lesson.test_command}{backend.option}", markup=False)


def _lacking(
    learner: Learner, state: State, lessons: tuple[Lesson, ...], failing: bool
) -> dict[Task, list[FunctionRef]]:
    """The functions to borrow, by task: stubs, those that are gone, and on request all of a failing task."""
    lacking = {}
    for task in (task for lesson in lessons for task in lesson.tasks):
        result = state.result(learner.package, task.name)
        replace_all = failing and result is not None and result.state in FAILING
        refs = [ref for ref in task.implements if learner.should_have(ref)]
        refs = [ref for ref in refs if replace_all or not learner.has_code(ref)]
        if refs:
            lacking[task] = refs
    return lacking
