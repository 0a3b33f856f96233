"""pytest in a process of its own, so that code that takes Python down leaves the board standing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from coursekit.errors import CourseError
from coursekit.interrupts import INTERRUPTED
from coursekit.paths import ROOT_VARIABLE, Course
from coursekit.running import memory_limit, pytest_child
from coursekit.running.journal import load_report
from coursekit.running.results import Report

# pytest's own exit codes.
TESTS_FAILED = 1
INTERNAL_ERROR = 3
USAGE_ERROR = 4
NOTHING_COLLECTED = 5
ASKS_AT_THE_KEYBOARD = ("--pdb", "--trace", "-s", "--capture=no")
"""Arguments with which a test may read what is typed."""
WAIT_FOR_END = 1.5
# Beside other work on the same cores, torch's threads that spin while they wait make tests many times slower.
WAIT_POLITELY = {"OMP_WAIT_POLICY": "PASSIVE"}


@dataclass(frozen=True)
class Outcome:
    """pytest's exit code, what the plugin reported (None if nothing), and pytest's last words on errors."""

    code: int
    report: Report | None
    errors: str


def run_pytest(course: Course, arguments: list[str], quiet: bool) -> Outcome:
    """Run pytest in ``course`` with the plugin; with ``quiet`` only the plugin's marks are shown."""
    with tempfile.TemporaryDirectory(prefix="coursekit-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        report_file = folder / "report.json"
        command = [pytest_child.FEW_PLUGINS, "--coursekit-report", str(report_file)]
        command += ["--coursekit-memory", str(memory_limit.allowed())]
        command += ["--basetemp", str(folder / "tests"), *arguments]
        if quiet:
            with open(folder / "errors.txt", "w+b") as errors:
                code = run_child(course, ["--coursekit-quiet", *command], errors)
                errors.seek(0)
                said = errors.read().decode("utf-8", "replace")
        else:
            code, said = run_child(course, command, None), ""
        return Outcome(code, load_report(report_file, code, course.root), said)


def run_child(
    course: Course, arguments: list[str], errors: object, variables: Mapping[str, str] | None = None
) -> int:
    """Run pytest to its end. Returns its exit code, 130 for Ctrl-C, or minus the number of the signal that ended it.

    However this process ends, pytest's does not outlive it.

    Args:
        course: where.
        arguments: pytest's, besides the plugin.
        errors: where its standard error goes; None: where ours goes.
        variables: of the environment, unless they are set.
    """
    keyboard = any(argument.startswith(ASKS_AT_THE_KEYBOARD) for argument in arguments)
    command = [sys.executable, "-m", pytest_child.__name__, *([] if keyboard else [pytest_child.PIPE])]
    command += ["-p", "coursekit.plugin", *arguments]
    environment = WAIT_POLITELY | dict(variables or {}) | os.environ | {ROOT_VARIABLE: str(course.root)}
    process = subprocess.Popen(
        command,
        cwd=course.root,
        env=environment,
        stdin=None if keyboard else subprocess.PIPE,  # the child sees it close
        stderr=errors,  # type: ignore[call-overload]
    )
    with _ended_with_us(process):
        try:
            return process.wait()
        except KeyboardInterrupt:
            # Some programs that start us pass the signal on, so that it comes twice.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _stop(process)
            return INTERRUPTED


def refusal(outcome: Outcome) -> CourseError:
    """What pytest says when it can't do what it was asked, in one line."""
    lines = [line.strip() for line in outcome.errors.splitlines() if line.strip()]
    # Of an unknown option pytest says how it is used first ("ERROR: usage: …"), then what is wrong ("…: error: …").
    for mark in (": error: ", "ERROR: "):
        for line in lines:
            if mark in line:
                return CourseError(line.partition(mark)[2])
    return CourseError("pytest could not run: try again with --verbose")


@contextlib.contextmanager
def _ended_with_us(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Within it, signals that ask us to end make us leave by an exception; the process never outlives the block."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {name: signal.signal(getattr(signal, name), _leave) for name in names}
    try:
        yield
    finally:
        process.kill()
        process.wait()
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Let a process end that has most likely had the Ctrl-C too; ask it once more."""
    for ask in (lambda: None, lambda: process.send_signal(signal.SIGINT)):
        with contextlib.suppress(OSError, ValueError):  # Windows sends no SIGINT to another process
            ask()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(WAIT_FOR_END)
            return
