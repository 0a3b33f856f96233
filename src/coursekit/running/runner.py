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
from coursekit.learner.stubs_left import begun_and_next
from coursekit.manifest import Lesson, Manifest, load_manifest
from coursekit.paths import Course
from coursekit.running.board import Board, earned
from coursekit.running.import_path import Impl
from coursekit.running.pytest_process import (
    INTERNAL_ERROR,
    INTERRUPTED,
    NOTHING_COLLECTED,
    TESTS_FAILED,
    USAGE_ERROR,
    refusal,
    run_child,
    run_pytest,
)
from coursekit.running.results import Report
from coursekit.tracks import covers, track_refusal

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
    week: Annotated[int | None, typer.Option(help="Test the days of this week.")] = None,
    day: Annotated[int | None, typer.Option(help="Test this day of the week.")] = None,
    impl: Annotated[Impl, typer.Option(help="Whose code: yours, or the reference.")] = Impl.LEARNER,
    backend: Annotated[Backend, typer.Option(help="The framework that the arrays are of.")] = Backend.TORCH,
    device: Annotated[Device, typer.Option(help="Where the arrays are put.")] = Device.CPU,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show what pytest says, too.")] = False,
    pytest_args: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- PYTEST ARGUMENTS", help="After --: passed on to pytest."),
    ] = None,
) -> None:
    """Test your code: the day that you name, the week, or every day begun and the one after."""
    course = Course.find()
    manifest = load_manifest(course)
    lessons = select(course, manifest, week, day, impl, backend)
    arguments = ["--impl", impl, "--backend", backend, "--device", device]
    arguments += ["--verbose"] if verbose else []
    arguments += [*(pytest_args or []), *(_test_file(course, lesson) for lesson in lessons)]
    quiet = not verbose and not any(
        argument.startswith(TALKATIVE + TALKATIVE_TOO) for argument in pytest_args or []
    )
    outcome = run_pytest(course, arguments, quiet)
    report = outcome.report
    if outcome.code == NOTHING_COLLECTED:
        raise CourseError(_nothing_matches(pytest_args or [], lessons))
    if outcome.code == INTERRUPTED and report is None:
        typer.echo("interrupted", err=True)
        raise typer.Exit(INTERRUPTED)
    if outcome.code in (USAGE_ERROR, INTERNAL_ERROR) or report is None:
        raise refusal(outcome) if quiet else typer.Exit(2)
    borrowed: frozenset[str] = frozenset()
    if impl is Impl.LEARNER:
        record(course, manifest, report, backend.package)
        borrowed = borrowed_tasks(course, manifest, backend.package)
    if report.results or report.errors:
        report.interrupted |= outcome.code == INTERRUPTED
        options = _repeated(impl, backend, device)
        Board(course, manifest, lessons, report, options, Console(highlight=False), borrowed).show()
        if week is not None and lessons != _lessons_of(manifest, week, day):
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


def select(
    course: Course,
    manifest: Manifest,
    week: int | None,
    day: int | None,
    impl: Impl = Impl.LEARNER,
    backend: Backend = Backend.TORCH,
) -> tuple[Lesson, ...]:
    """The days to test.

    Raises:
        CourseError: there is no such week or day, or the backend's track does not cover it.
    """
    if day is not None and week is None:
        raise CourseError(f"--day {day} of which week? Name it: pdm run test --week 1 --day {day}")
    package = backend.package
    if week is None:
        track = Manifest(tuple(lesson for lesson in manifest.lessons if covers(course, package, lesson)))
        chosen = track.lessons if impl is Impl.SOLUTION else begun_and_next(course, package, track)
    else:
        asked = _lessons_of(manifest, week, day)
        chosen = tuple(lesson for lesson in asked if covers(course, package, lesson))
    if not chosen:
        raise CourseError(
            track_refusal(course, package, manifest) if manifest.lessons else "the course has no day yet"
        )
    return chosen


def record(course: Course, manifest: Manifest, report: Report, package: str) -> None:
    """Keep the results of the tasks all of whose tests ran."""
    whole = [task for task in report.tasks.values() if task.complete]
    if not whole:
        return
    state = State.load(course)
    for result in whole:
        state.record(package, result.name, result.state, earned(manifest.task(result.name), result))
    state.save()


def _lessons_of(manifest: Manifest, week: int, day: int | None) -> tuple[Lesson, ...]:
    weeks = sorted({lesson.week for lesson in manifest.lessons})
    if week not in weeks:
        there = "; ".join(f"Week {number} ({_days_of(manifest, number)})" for number in weeks) or "none yet"
        raise CourseError(f"there is no Week {week}; there are: {there}")
    if day is not None:
        return (manifest.lesson(f"{week}.{day}"),)
    return tuple(lesson for lesson in manifest.lessons if lesson.week == week)


def _days_of(manifest: Manifest, week: int) -> str:
    days = [str(lesson.day) for lesson in manifest.lessons if lesson.week == week]
    return f"{'Day' if len(days) == 1 else 'Days'} {', '.join(days)}"


def _test_file(course: Course, lesson: Lesson) -> str:
    path = course.tests / f"week_{lesson.week}" / f"test_day_{lesson.day}.py"
    shown = path.relative_to(course.root).as_posix()
    if not path.is_file():
        raise CourseError(
            f"Day {lesson.name} has no tests: {shown} is not there; `git restore {shown}` brings it back"
        )
    return shown


def _nothing_matches(arguments: list[str], lessons: tuple[Lesson, ...]) -> str:
    asked = " ".join(arguments) or "this"
    if len(lessons) > 1:
        days = ", ".join(
            f"{lesson.name} ({', '.join(task.id for task in lesson.tasks)})" for lesson in lessons
        )
        return f"{asked} matches no test; there are Days {days}"
    tasks = "; ".join(f"{task.id} {task.title}" for task in lessons[0].tasks)
    return f"{asked} matches no test of Day {lessons[0].name}; there are: {tasks}"


def _repeated(impl: Impl, backend: Backend, device: Device) -> str:
    """The options of this run that the next command needs too."""
    options = {
        "--impl": (impl, Impl.LEARNER),
        "--backend": (backend, Backend.TORCH),
        "--device": (device, Device.CPU),
    }
    return " ".join(f"{name} {value}" for name, (value, usual) in options.items() if value != usual)


def _exit_code(code: int, report: Report) -> int:
    """0 only where the run ended as it should and found nothing that is wrong or missing."""
    if code == INTERRUPTED or report.interrupted:
        return INTERRUPTED
    return 0 if code == 0 and report.passed else TESTS_FAILED
