"""What a test printed, shortened to what a board has room for."""

from __future__ import annotations

import pytest

LINES = 20
COLUMNS = 200


def printed(report: pytest.TestReport) -> str:
    """The last lines of what a test wrote to standard output, then to standard error; each cut to a length.

    The last lines are those nearest to the failure.
    """
    return "\n".join(filter(None, (_tail(report.capstdout), _tail(report.capstderr))))


def _tail(text: str) -> str:
    lines = text.rstrip().splitlines()
    shown = [line if len(line) <= COLUMNS else line[:COLUMNS] + "…" for line in lines[-LINES:]]
    left_out = len(lines) - len(shown)
    return "\n".join([*([f"… {left_out} lines before these"] if left_out else []), *shown])
