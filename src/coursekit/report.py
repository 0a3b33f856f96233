"""What reset and catch-up print about the functions that they changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from coursekit.manifest import FunctionRef, Task
from coursekit.paths import Course


def functions_table(course: Course, package: str, changed: Mapping[Task, Sequence[FunctionRef]]) -> Table:
    """One row a task: its name and title, the file, the functions."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    for task, refs in changed.items():
        for file in sorted({ref.file for ref in refs}):
            path = (course.starter(package) / file).relative_to(course.root).as_posix()
            names = ", ".join(ref.qualname for ref in refs if ref.file == file)
            table.add_row(Text(task.name), Text(task.title), Text(f"{path}: {names}"))
    return table
