"""`pdm run survivors`: lines of the reference that can be changed without any test of their task noticing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console

from authoring.gates.day_tests import tests_of_task
from authoring.gates.gate import Context
from authoring.gates.workers import Job, JobResult
from authoring.mutation import Mutation, mutations
from authoring.progress import count
from coursekit.errors import CourseError
from coursekit.machine import cores
from coursekit.manifest import FunctionRef, Lesson, Task
from coursekit.paths import Course
from coursekit.task_state import TaskState

PACKAGE = "tiny_llm"
SECONDS = 60.0  # for the tests of one task on one mutation


@dataclass(frozen=True)
class Generated:
    """A mutation, and whose it is."""

    lesson: Lesson
    task: Task
    function: FunctionRef
    mutation: Mutation


def survivors(
    target: Annotated[
        str, typer.Argument(metavar="DAY or TASK", help="A day such as 1.3, or a task such as 1.3.2.")
    ],
    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="NUMBER", help="How many runs at a time; by default one a core."),
    ] = None,
) -> None:
    """Change the reference's lines one by one, mechanically, and list the changes that the task's tests don't notice.

    The list is to be read, not to be emptied: a change may mean the same as before. Where it doesn't, the chapter or
    the docstring promises something that no test holds. Takes one to twenty minutes a day.
    """
    console = Console(highlight=False)
    context = Context(Course.find(), console, workers or cores())
    generated = generate(context, target)
    results = context.run(f"mutations of {target}", [_job(context, one) for one in generated])
    lived = [one for one, result in zip(generated, results, strict=True) if _survives(one, result)]
    show(console, generated, lived)


def generate(context: Context, target: str) -> list[Generated]:
    """All mutations of a day's or a task's functions.

    Raises:
        CourseError: there is no such day or task.
    """
    lesson = context.manifest.lesson(".".join(target.split(".")[:2]))
    tasks = [task for task in lesson.tasks if target in (lesson.name, task.name)]
    if not tasks:
        raise CourseError(
            f"there is no task {target}; Day {lesson.name} has {count(len(lesson.tasks), 'task')}"
        )
    return [
        Generated(lesson, task, function, mutation)
        for task in tasks
        for function in task.implements
        for mutation in mutations(
            context.reference[PACKAGE][function.file].decode("utf-8"), function.qualname, function.file
        )
    ]


def show(console: Console, generated: list[Generated], lived: list[Generated]) -> None:
    """A line for each function, and below it the changes that no test noticed."""
    for function, group in groupby(generated, key=lambda one: (one.task.name, one.function)):
        of_function = list(group)
        alive = [one.mutation for one in of_function if one in lived]
        console.print(
            f"[bold]{function[0]}  {function[1]}[/bold]: {len(alive)} of {len(of_function)} unnoticed"
        )
        for mutation in alive:
            console.print(f"  line {mutation.line}", markup=False)
            for sign, text in (("-", mutation.before), ("+", mutation.after)):
                for line in text.splitlines():
                    console.print(f"    {sign} {line}", markup=False, soft_wrap=True)
    console.print(f"{len(lived)} of {count(len(generated), 'mutation')} unnoticed")


def _job(context: Context, one: Generated) -> Job:
    files = {**context.reference[PACKAGE], one.function.file: one.mutation.content.encode("utf-8")}
    return Job(
        f"{one.function}:{one.mutation.line}",
        one.lesson,
        {**context.reference, PACKAGE: files},
        SECONDS,
        tests_of_task(context.course, one.lesson, one.task),
        stop_at_first_failure=True,
    )


def _survives(one: Generated, result: JobResult) -> bool:
    return not result.timed_out and not result.died and result.state(one.task.name) == TaskState.PASSED
