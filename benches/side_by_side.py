"""What the measurements of attention share: running on one implementation, in turns, and a table of medians."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.running.import_path import Impl, choose_implementation
from programs.implementation import explain_stubs

H, HKV, D, LAYERS = 9, 3, 64, 30
"""The heads and layers of SmolLM2-135M."""

Ways = dict[str, Callable[[], object]]

RepeatsOption = Annotated[int, typer.Option(min=1, help="Rounds; the median of them is shown.")]
ThreadsOption = Annotated[int, typer.Option(min=0, help="Threads to use; 0 leaves it to the libraries.")]


@contextmanager
def implementation(impl: Impl, threads: int) -> Iterator[None]:
    """Run on one implementation with so many threads; a stub that is reached becomes advice."""
    import numba
    import torch

    course = Course.find()
    choose_implementation(course, impl)
    if threads:
        torch.set_num_threads(threads)
        numba.set_num_threads(min(threads, numba.get_num_threads()))
    try:
        with explain_stubs(course), torch.inference_mode():
            yield
    except CourseError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def medians(ways: Ways, repeats: int) -> dict[str, float]:
    """Milliseconds that each way takes; all have their turn in every round, after one that doesn't count."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            times[name].append((time.perf_counter() - started) * 1e3)
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def show(title: str, taken: dict[str, float], against: str) -> None:
    """A table of milliseconds, and of ratios to one of the ways."""
    table = Table("", "ms", f"× {against}", box=None, title=title, title_justify="left", title_style="bold")
    table.columns[1].justify = table.columns[2].justify = "right"
    for name, milliseconds in taken.items():
        table.add_row(name, f"{milliseconds:.2f}", f"{milliseconds / taken[against]:.2f}")
    Console(highlight=False).print(table, "")
