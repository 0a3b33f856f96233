"""`pdm run test` and `pdm run test-solution`: choosing what to run, running it, and keeping the results."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console

from coursekit.backends import Backend, Device
from coursekit.interrupts import INTERRUPTED
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from coursekit.running.options import BackendOption, DeviceOption, KeywordOption, WordsArgument
from coursekit.running.output import show
from coursekit.running.pytest_process import (
    TESTS_FAILED,
    run_child,
)
from coursekit.running.results import Report
from coursekit.running.round import Round
from coursekit.running.selection import lessons_of, read_arguments
from coursekit.tracks import track_refusal

MOST_WORKERS = 4
"""Of the whole suite: each has torch and often a model in memory."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def run_tests(
    words: WordsArgument = None,
    keyword: KeywordOption = None,
    every_failure: Annotated[
        bool, typer.Option("--all", help="Show every failing test, not only the first.")
    ] = False,
    week: Annotated[int | None, typer.Option(help="Test the days of this week.")] = None,
    day: Annotated[int | None, typer.Option(help="Test this day of the week.")] = None,
    impl: Annotated[Impl, typer.Option(help="Whose code: yours, or the reference.")] = Impl.LEARNER,
    backend: BackendOption = Backend.TORCH,
    device: DeviceOption = Device.CPU,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what pytest says, too.")] = False,
) -> None:
    """Test your code: the day or the task that you name, the week, or every day begun and the one after."""
    course = Course.find()
    manifest = load_manifest(course, backend.package)
    asked = read_arguments(course, manifest, words or [], week, day, keyword)
    one = Round(course, manifest, asked, impl, backend, device, verbose)
    code, report = one.run()
    borrowed = one.keep(report)
    if report.results or report.errors:
        console = Console(highlight=False)
        show(one.board(report, console, borrowed, every_failure), in_a_line=one.quiet and not report.finished)
        if asked.week is not None and one.lessons != lessons_of(manifest, asked.week, asked.day):
            typer.echo(f"\nLeft out: {track_refusal(course, backend.package, manifest)}")
    raise typer.Exit(_exit_code(code, report))


def run_suite(
    pytest_args: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- PYTEST ARGUMENTS", help="After --: passed on to pytest."),
    ] = None,
) -> None:
    """Run the whole test suite on the reference, file by file on up to four cores; on one with pytest arguments."""
    course = Course.find()
    cores = min(MOST_WORKERS, os.cpu_count() or 1)
    spread = ["-p", "xdist", "-n", str(cores), "--dist", "loadfile"] if cores > 1 and not pytest_args else []
    arguments = [
        "--impl",
        Impl.SOLUTION,
        "-q",
        "-rs",
        *spread,
        *(pytest_args or []),
    ]  # -rs: why a test was skipped
    raise typer.Exit(run_child(course, arguments, None, ONE_THREAD if spread else {}))


def _exit_code(code: int, report: Report) -> int:
    """0 only where the run ended as it should and found nothing that is wrong or missing."""
    if code == INTERRUPTED or report.interrupted:
        return INTERRUPTED
    return 0 if code == 0 and report.passed else TESTS_FAILED
