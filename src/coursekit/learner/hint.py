"""`pdm run hint 1.3.2`: the next of a task's three hints."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.learner.state import State, note
from coursekit.manifest import Manifest, Task, list_tasks, load_manifest
from coursekit.paths import Course

HINTS = 3
WIDTH = 100


def hint(
    task: Annotated[str, typer.Argument(help="The task: week.day.task, for example 1.3.2.", metavar="TASK")],
    level: Annotated[
        int | None, typer.Option(min=1, max=HINTS, help="Show this hint: 1 where to look, 3 almost the code.")
    ] = None,
    backend: Annotated[
        Backend | None, typer.Option(help="Whose hints, where MLX has its own; left out, of your last tests.")
    ] = None,
) -> None:
    """Show a task's hints, one more with every call: where to look, how to think of it, almost the code."""
    course = Course.find()
    track = backend or Backend.of(_latest(course))
    found = find_task(load_manifest(course, track.package), task)
    show_hints(found, _count(course, found, level), Console(highlight=False), track)


def _latest(course: Course) -> str:
    try:
        return State.load(course).latest_package()
    except CourseError:  # a record that can't be read
        return Backend.TORCH.package


def _count(course: Course, task: Task, level: int | None) -> list[int]:
    """The hints to show, noted as shown; where that can't be noted, they are shown all the same."""
    try:
        with State.changing(course) as state:
            shown = _next(state, task, level)
            state.hints[task.name] = max(state.hints.get(task.name, 0), *shown)
    except CourseError as error:
        note(f"{error}; that you saw this hint is not recorded")
        return [level or 1]
    return shown


def _next(state: State, task: Task, level: int | None) -> list[int]:
    seen = state.hints.get(task.name, 0)
    return [level] if level else [seen + 1] if seen < HINTS else [1, 2, 3]


def find_task(manifest: Manifest, name: str) -> Task:
    """The task of that name; a day's name will do where the day has one task.

    Raises:
        CourseError: no such task, or a day of several tasks; the message lists them.
    """
    if name.count(".") != 1:
        return manifest.task(name)
    lesson = manifest.lesson(name)
    if len(lesson.tasks) == 1:
        return lesson.tasks[0]
    raise CourseError(f"{name} is a day; name one of its tasks: {list_tasks(lesson)}")


def show_hints(task: Task, numbers: list[int], console: Console, backend: Backend) -> None:
    width, test = min(console.width, WIDTH), f"{task.test_command}{backend.option}"
    console.print(f"[bold]{task.label}[/bold]: ", end="")
    console.print(task.title, markup=False)
    if len(numbers) == HINTS:
        console.print("You have seen all three hints; here they are again.")
    for number in numbers:
        console.print(f"\n[cyan]Hint {number} of {HINTS}[/cyan]")
        console.print(Markdown(task.hints[number - 1]), width=width)
    console.print()
    if numbers[-1] < HINTS:
        console.print(f"Test it:       {test}", markup=False, soft_wrap=True)
        console.print(
            f"The next hint: pdm run hint {task.name}{backend.option}", markup=False, soft_wrap=True
        )
    else:
        console.print(f"Test it: {test}", markup=False, soft_wrap=True)
