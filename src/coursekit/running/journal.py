"""What a run has found so far, on disk while it goes on: a test may take Python down with it.

A line of JSON for each thing that happens, written at once. A run that ends as it should writes its report beside it.
"""

from __future__ import annotations

import faulthandler
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

from coursekit.interrupts import INTERRUPTED
from coursekit.running.last_words import last_words
from coursekit.running.results import Report, Result, read_report, read_result
from coursekit.task_state import TaskState


def journal_of(report_file: Path) -> Path:
    return report_file.with_suffix(".journal")


def faults_of(report_file: Path) -> Path:
    """Where `faulthandler` writes what every thread was doing when the process was ended."""
    return report_file.with_suffix(".faults")


def open_faults(report_file: str | None) -> TextIO | None:
    """Let `faulthandler` write there from now on; None for a run that reports nothing."""
    if report_file is None:
        return None
    faults = open(faults_of(Path(report_file)), "w", encoding="utf-8")  # noqa: SIM115 (open for as long as pytest runs)
    faulthandler.enable(file=faults)
    return faults


class Journal:
    """Notes what happens in a run, a line at a time."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 (open for as long as pytest runs)

    def begin(self, report: Report) -> None:
        """Note what the report holds before the first test: whose code it is, and how many tests each task has."""
        self._write("begin", asdict(report))

    def start(self, test: Result) -> None:
        """Note that a test starts; what is known of it before it has ended."""
        self._write("start", asdict(test))

    def add(self, result: Result) -> None:
        """Note how the test that was started last has ended."""
        self._write("result", asdict(result))

    def close(self) -> None:
        self._file.close()

    def _write(self, kind: str, value: dict[str, Any]) -> None:
        self._file.write(json.dumps([kind, value]).encode("utf-8") + b"\n")


def load_report(report_file: Path, code: int, root: Path) -> Report | None:
    """The report of a run, or what its journal tells where it did not end as it should; None if it never began.

    Args:
        report_file: where the run was told to write its report.
        code: the process's exit code, minus the number of the signal that ended it, or 130 after Ctrl-C.
        root: of the course whose tests ran, for the places that a message names.

    Returns:
        The report. Where the process ended within a test, that test counts as crashed; after Ctrl-C, as not run.
    """
    if report_file.is_file():
        return read_report(report_file)
    if not journal_of(report_file).is_file():
        return None
    report, running = _read_journal(journal_of(report_file).read_bytes())
    if report is not None and running is not None and code != INTERRUPTED:
        faults = faults_of(report_file)
        said = faults.read_text(encoding="utf-8", errors="replace") if faults.is_file() else ""
        report.add(replace(running, state=TaskState.CRASHED, message=last_words(code, said, root)))
    return report


def _read_journal(content: bytes) -> tuple[Report | None, Result | None]:
    """What was found, and the test that was running at the end."""
    report, running = None, None
    for line in content.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break  # the process ended while it wrote this line
        kind, value = json.loads(line)
        if kind == "begin":
            report = Report(**value)
        elif kind == "start":
            running = read_result(value)
        elif report is not None:
            running = None
            report.add(read_result(value))
    return report, running
