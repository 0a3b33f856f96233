"""`pdm run diff 1.3.2`: the learner's functions of a task beside the reference's, once the task has passed."""

from __future__ import annotations

from difflib import SequenceMatcher, unified_diff
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coursekit.backends import Backend
from coursekit.editing.source import function_source
from coursekit.editing.transplant import Learner
from coursekit.errors import CourseError
from coursekit.learner.hint import find_task
from coursekit.learner.standing import Standing, Survey
from coursekit.learner.state import State
from coursekit.manifest import FunctionRef, Manifest, Task, load_manifest
from coursekit.paths import Course

WIDE = 140  # columns from which two functions stand side by side


def diff(
    name: Annotated[str, typer.Argument(help="The task, for example 1.3.2.", metavar="TASK")],
    backend: Annotated[
        Backend, typer.Option(help="Whose package: torch is tiny_llm, mlx is tiny_llm_mlx.")
    ] = Backend.TORCH,
) -> None:
    """Show your functions of a task beside the reference's. It opens when the task has passed."""
    course = Course.find()
    manifest = load_manifest(course, backend.package)
    task = find_task(manifest, name)
    _require_passed(course, manifest, task, backend)
    learner = Learner(course, backend.package, manifest)
    console = Console(highlight=False)
    for ref in task.implements:
        if learner.should_have(ref):
            _show(console, learner, ref)


def _require_passed(course: Course, manifest: Manifest, task: Task, backend: Backend) -> None:
    days = Survey(course, manifest, State.load(course), backend.package).days
    standing = {each: state for day in days for each, state in day.tasks.items()}.get(task)
    if standing is None:
        raise CourseError(f"{backend.package} has nothing of {task.label}: leave --backend {backend} out")
    if standing is Standing.BORROWED:
        raise CourseError(f"{task.name} is borrowed from the reference: there is nothing to compare")
    if standing is not Standing.PASSED:
        command = f"{task.test_command}{backend.option}"
        raise CourseError(
            f"{task.name} {task.title} is {standing}: the reference is shown beside your code when the task has "
            f"passed ({command}); until then there are hints: pdm run hint {task.name}"
        )


def _show(console: Console, learner: Learner, ref: FunctionRef) -> None:
    own = function_source(learner.text(ref.file), ref.qualname, ref.file).splitlines()
    reference = function_source(learner.reference_text(ref.file), ref.qualname, ref.file).splitlines()
    console.print()
    console.print(Text(f"{ref.file}: {ref.qualname}", "bold"))
    if own == reference:
        console.print("  the same as the reference")
    elif console.width >= WIDE:
        console.print(_beside(own, reference))
    else:
        _print_unified(console, own, reference)


def _beside(own: list[str], reference: list[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("yours", "the reference"):
        table.add_column(heading, ratio=1, overflow="fold")
    for kind, first, last, start, end in SequenceMatcher(None, own, reference, False).get_opcodes():
        left, right = own[first:last], reference[start:end]
        for row in range(max(len(left), len(right))):
            table.add_row(
                Text(left[row] if row < len(left) else "", "" if kind == "equal" else "red"),
                Text(right[row] if row < len(right) else "", "" if kind == "equal" else "green"),
            )
    return table


def _print_unified(console: Console, own: list[str], reference: list[str]) -> None:
    """The whole function, with - before the learner's lines and + before the reference's."""
    lines = unified_diff(
        own, reference, "yours", "the reference", n=max(len(own), len(reference)), lineterm=""
    )
    styles = {"-": "red", "+": "green"}
    for line in lines:
        if not line.startswith("@@"):
            console.print(Text(line, styles.get(line[:1], "")), soft_wrap=True)
