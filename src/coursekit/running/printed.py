"""What pytest's report of a test has for the board: what the test printed, shortened, and why it was skipped."""

from __future__ import annotations

import pytest

LINES = 20
COLUMNS = 200


def printed(report: pytest.TestReport) -> str:
    """The last lines of what a test wrote to standard output, then to standard error; each cut to a length.

    The last lines are those nearest to the failure.
    """
    return "\n".join(filter(None, (_tail(report.capstdout), _tail(report.capstderr))))


def skip_reason(report: pytest.TestReport) -> str:
    """Why a test was skipped."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext


def _tail(text: str) -> str:
    lines = text.rstrip().splitlines()
    shown = [line if len(line) <= COLUMNS else line[:COLUMNS] + "…" for line in lines[-LINES:]]
    left_out = len(lines) - len(shown)
    return "\n".join([*([f"… {left_out} lines before these"] if left_out else []), *shown])
