"""What reset and catch-up print about the functions that they changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from coursekit.manifest import FunctionRef, Task
from coursekit.paths import Course
from coursekit.track_files import starter_file


def print_functions(
    console: Console, course: Course, package: str, changed: Mapping[Task, Sequence[FunctionRef]]
) -> None:
    """Print each file with a row a task below it: the task's name, its title, its functions there."""
    for file in dict.fromkeys(ref.file for refs in changed.values() for ref in refs):
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for task, refs in changed.items():
            names = ", ".join(ref.qualname for ref in refs if ref.file == file)
            if names:
                table.add_row(Text(task.name), Text(task.title), Text(names))
        path = starter_file(course, package, file).relative_to(course.root).as_posix()
        console.print()
        console.print(Text(path, "bold"))
        console.print(Padding(table, (0, 0, 0, 2)))
