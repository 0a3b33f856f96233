"""One round of the learner's tests: run them, keep the results, make the board."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import typer
from rich.console import Console

from coursekit.backends import Backend, Device
from coursekit.errors import CourseError
from coursekit.interrupts import INTERRUPTED
from coursekit.learner.standing import borrowed_tasks
from coursekit.learner.state import State, note
from coursekit.manifest import Lesson, Manifest
from coursekit.paths import Course
from coursekit.running.board import Board, earned
from coursekit.running.import_path import Impl
from coursekit.running.pytest_process import (
    INTERNAL_ERROR,
    NOTHING_COLLECTED,
    USAGE_ERROR,
    refusal,
    run_pytest,
)
from coursekit.running.results import Report
from coursekit.running.selection import Asked, nothing_matches, select
from coursekit.task_state import TaskState

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


@dataclass(frozen=True)
class Round:
    """What to test, whose code, on what; `verbose` shows what pytest says."""

    course: Course
    manifest: Manifest
    asked: Asked
    impl: Impl
    backend: Backend
    device: Device
    verbose: bool = False

    @cached_property
    def lessons(self) -> tuple[Lesson, ...]:
        """The days to test.

        Raises:
            CourseError: there is no such week or day, or the backend's track does not cover it.
        """
        return select(self.course, self.manifest, self.asked.week, self.asked.day, self.impl, self.backend)

    @property
    def quiet(self) -> bool:
        """Whether pytest's own output is left out."""
        return not self.verbose and not any(
            argument.startswith(TALKATIVE + TALKATIVE_TOO) for argument in self.asked.arguments
        )

    def run(self) -> tuple[int, Report]:
        """Run the tests; pytest's exit code and what was found.

        Raises:
            CourseError: no test matches, or pytest can't do what it was asked.
            typer.Exit: it has said so itself, or was interrupted before it had found anything.
        """
        arguments = ["--impl", self.impl, "--backend", self.backend, "--device", self.device]
        arguments += ["--verbose"] if self.verbose else []
        arguments += [*self.asked.arguments, *(_test_file(self.course, lesson) for lesson in self.lessons)]
        outcome = run_pytest(self.course, arguments, self.quiet)
        if outcome.code == NOTHING_COLLECTED:
            raise CourseError(nothing_matches(self.asked.arguments, self.lessons))
        if outcome.code == INTERRUPTED and outcome.report is None:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED)
        if outcome.code in (USAGE_ERROR, INTERNAL_ERROR) or outcome.report is None:
            raise refusal(outcome) if self.quiet else typer.Exit(2)
        outcome.report.interrupted |= outcome.code == INTERRUPTED
        return outcome.code, outcome.report

    def keep(self, report: Report) -> frozenset[str]:
        """Record the results of the learner's code; the names of the tasks that are borrowed."""
        if self.impl is not Impl.LEARNER:
            return frozenset()
        try:
            borrowed = borrowed_tasks(self.course, self.manifest, self.backend.package)
            record(self.course, self.manifest, report, self.backend.package)
        except CourseError as error:
            note(f"{error}; these results are not recorded")
            return frozenset()
        return borrowed

    def board(
        self, report: Report, console: Console, borrowed: frozenset[str], every_failure: bool = False
    ) -> Board:
        options = _repeated(self.impl, self.backend, self.device)
        return Board(
            self.course, self.manifest, self.lessons, report, options, console, borrowed, every_failure
        )


def record(course: Course, manifest: Manifest, report: Report, package: str) -> None:
    """Keep the results of the tasks all of whose tests ran, and of those that fail whatever the others say."""
    failing = (TaskState.CRASHED, TaskState.WRONG)
    whole = [task for task in report.tasks.values() if task.complete or task.state in failing]
    if not whole:
        return
    with State.changing(course) as state:
        for result in whole:
            state.record(package, result.name, result.state, earned(manifest.task(result.name), result))


def _test_file(course: Course, lesson: Lesson) -> str:
    path = course.tests / lesson.test_file
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
