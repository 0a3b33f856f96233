"""pytest in a process of its own, so that code that takes Python down leaves the board standing."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.paths import ROOT_VARIABLE, Course
from coursekit.running.results import Report, Result, read_report, sentence
from coursekit.task_state import TaskState

INTERRUPTED = 130
# pytest's own exit codes.
TESTS_FAILED = 1
STOPPED = 2
USAGE_ERROR = 4
NOTHING_COLLECTED = 5
TEST_ID = re.compile(r"tests/week_(\d+)/test_day_(\d+)\.py::(test_task_(\d+)_\w+(?:\[.*\])?)")
# What faulthandler says of the innermost frame first, and how pytest-timeout announces itself.
FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
WAIT_FOR_END = 3.0
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
    with tempfile.TemporaryDirectory(prefix="coursekit-") as folder:
        report_file = Path(folder) / "report.json"
        command = ["--coursekit-report", str(report_file), *arguments]
        if quiet:
            with open(Path(folder) / "errors.txt", "w+b") as errors:
                code = run_child(course, ["--coursekit-quiet", *command], errors)
                errors.seek(0)
                said = errors.read().decode("utf-8", "replace")
        else:
            code, said = run_child(course, command, None), ""
        report = read_report(report_file) if report_file.is_file() else None
        if report is not None and not report.finished and code != INTERRUPTED:
            running = report_file.with_suffix(".running")
            if running.is_file():
                print(flush=True)  # the line of marks was left open
                _add_victim(report, running.read_text(encoding="utf-8"), code, said, course)
        return Outcome(code, report, said)


def run_child(
    course: Course, arguments: list[str], errors: object, variables: Mapping[str, str] | None = None
) -> int:
    """Run pytest to its end; Ctrl-C lets it finish its report first. Returns its exit code, 130 for Ctrl-C.

    Args:
        course: where.
        arguments: pytest's, besides the plugin.
        errors: where its standard error goes; None: where ours goes.
        variables: of the environment, unless they are set.
    """
    command = [sys.executable, "-m", "pytest", "-p", "coursekit.plugin", *arguments]
    environment = WAIT_POLITELY | dict(variables or {}) | os.environ | {ROOT_VARIABLE: str(course.root)}
    process = subprocess.Popen(command, cwd=course.root, env=environment, stderr=errors)  # type: ignore[call-overload]
    try:
        return process.wait()
    except KeyboardInterrupt:
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


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that has most likely had the Ctrl-C too: politely, then less so."""
    for ask in (lambda: None, lambda: process.send_signal(signal.SIGINT), process.terminate, process.kill):
        with contextlib.suppress(OSError, ValueError):  # Windows sends no SIGINT to another process
            ask()
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(WAIT_FOR_END)
            return


def _add_victim(report: Report, test_id: str, code: int, said: str, course: Course) -> None:
    match = TEST_ID.fullmatch(test_id)
    if match is None:
        return
    week, day, name, number = match.groups()
    where = test_id.partition("::")[0]
    message = _last_words(code, said, course)
    report.add(
        Result(
            test_id, f"{week}.{day}.{number}", sentence(name), TaskState.CRASHED, message=message, where=where
        )
    )


def _last_words(code: int, said: str, course: Course) -> str:
    if "Timeout" in said:
        return "it ran for too long and was stopped: is there a loop that never ends?"
    lines = [f"Python itself stopped ({_reason(code)}); later tests did not run"]
    for frame in FRAME.finditer(said):
        path = Path(frame["file"])
        if path.is_relative_to(course.root / "src") or path.is_relative_to(course.root / "solutions"):
            place = path.relative_to(course.root).as_posix()
            lines.append(f"  {place}:{frame['line']}, in {frame['function']}")
            break
    return "\n".join(lines)


def _reason(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.strsignal(-code) or signal.Signals(-code).name
    return f"signal {-code}"
