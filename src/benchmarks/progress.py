"""How far a bench is, on standard error: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.progress import Progress

from coursekit.progress_bar import columns


def run_showing(steps: Iterable[str], total: int, console: Console) -> None:
    """Go through the steps, each of which says what it is before it runs."""
    with Progress(*columns(), console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        for number, what in enumerate(steps):
            bar.update(task, description=what, completed=number)
            if not console.is_terminal:
                console.print(what, soft_wrap=True, markup=False)
