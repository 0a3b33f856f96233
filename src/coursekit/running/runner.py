"""`pdm run test` and `pdm run test-solution`: choosing what to run, running it, and keeping the results."""

from __future__ import annotations

import os
from typing import Annotated

import typer
from rich.console import Console

from coursekit.backends import Backend, Device
from coursekit.errors import CourseError
from coursekit.learner.standing import borrowed_tasks
from coursekit.learner.state import State
from coursekit.manifest import Lesson, Manifest, load_manifest
from coursekit.paths import Course
from coursekit.running.board import Board, earned
from coursekit.running.import_path import Impl
from coursekit.running.pytest_process import (
    INTERRUPTED,
    NOTHING_COLLECTED,
    TESTS_FAILED,
    USAGE_ERROR,
    refusal,
    run_child,
    run_pytest,
)
from coursekit.running.results import Report
from coursekit.running.selection import lessons_of, nothing_matches, read_arguments, select
from coursekit.tracks import track_refusal

# Arguments of pytest that ask for its own output: with any of them it is not silenced.
TALKATIVE = (
    "-v",
    "-s",
    "-q",
    "-r",
    "-l",
    "-h",
    "--pdb",
    "--trace",
    "--tb",
    "--co",
    "--capture",
    "--durations",
)
TALKATIVE_TOO = ("--showlocals", "--setup-", "--fixtures", "--markers", "--help", "--version", "--full-trace")

MOST_WORKERS = 4
"""Of the whole suite: each has torch and often a model in memory."""
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


def run_tests(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DAY] [-- PYTEST ARGUMENTS]",
            help="A day such as 1.3, a task such as 1.3.2, or a week; after --: passed on to pytest.",
        ),
    ] = None,
    keyword: Annotated[
        str | None, typer.Option("-k", metavar="NAME", help="Run only tests that have this in their names.")
    ] = None,
    every_failure: Annotated[
        bool, typer.Option("--all", help="Show every failing test, not only the first.")
    ] = False,
    week: Annotated[int | None, typer.Option(help="Test the days of this week.")] = None,
    day: Annotated[int | None, typer.Option(help="Test this day of the week.")] = None,
    impl: Annotated[Impl, typer.Option(help="Whose code: yours, or the reference.")] = Impl.LEARNER,
    backend: Annotated[Backend, typer.Option(help="The framework that the arrays are of.")] = Backend.TORCH,
    device: Annotated[Device, typer.Option(help="Where the arrays are put.")] = Device.CPU,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what pytest says, too.")] = False,
) -> None:
    """Test your code: the day or the task that you name, the week, or every day begun and the one after."""
    course = Course.find()
    manifest = load_manifest(course)
    asked = read_arguments(course, manifest, words or [], week, day, keyword)
    lessons = select(course, manifest, asked.week, asked.day, impl, backend)
    arguments = ["--impl", impl, "--backend", backend, "--device", device]
    arguments += ["--verbose"] if verbose else []
    arguments += [*asked.arguments, *(_test_file(course, lesson) for lesson in lessons)]
    quiet = not verbose and not any(
        argument.startswith(TALKATIVE + TALKATIVE_TOO) for argument in asked.arguments
    )
    outcome = run_pytest(course, arguments, quiet)
    report = outcome.report
    if outcome.code == NOTHING_COLLECTED:
        raise CourseError(nothing_matches(asked.arguments, lessons))
    if outcome.code == USAGE_ERROR or report is None:
        raise refusal(outcome) if quiet else typer.Exit(outcome.code if outcome.code == INTERRUPTED else 2)
    borrowed: frozenset[str] = frozenset()
    if impl is Impl.LEARNER:
        record(course, manifest, report, backend.package)
        borrowed = borrowed_tasks(course, manifest, backend.package)
    if report.results or report.errors:
        report.interrupted |= outcome.code == INTERRUPTED
        options = _repeated(impl, backend, device)
        console = Console(highlight=False)
        Board(course, manifest, lessons, report, options, console, borrowed, every_failure).show()
        if asked.week is not None and lessons != lessons_of(manifest, asked.week, asked.day):
            typer.echo(f"\nLeft out: {track_refusal(course, backend.package, manifest)}")
    raise typer.Exit(_exit_code(outcome.code, report))


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


def record(course: Course, manifest: Manifest, report: Report, package: str) -> None:
    """Keep the results of the tasks all of whose tests ran."""
    whole = [task for task in report.tasks.values() if task.complete]
    if not whole:
        return
    state = State.load(course)
    for result in whole:
        state.record(package, result.name, result.state, earned(manifest.task(result.name), result))
    state.save()


def _test_file(course: Course, lesson: Lesson) -> str:
    path = course.tests / f"week_{lesson.week}" / f"test_day_{lesson.day}.py"
    shown = path.relative_to(course.root).as_posix()
    if not path.is_file():
        raise CourseError(
            f"Day {lesson.name} has no tests: {shown} is not there; `git restore {shown}` brings it back"
        )
    return shown


def _repeated(impl: Impl, backend: Backend, device: Device) -> str:
    """The options of this run that the next command needs too."""
    options = {
        "--impl": (impl, Impl.LEARNER),
        "--backend": (backend, Backend.TORCH),
        "--device": (device, Device.CPU),
    }
    return " ".join(f"{name} {value}" for name, (value, usual) in options.items() if value != usual)


def _exit_code(code: int, report: Report) -> int:
    if code == INTERRUPTED or report.interrupted:
        return INTERRUPTED
    return 0 if code == 0 else TESTS_FAILED
