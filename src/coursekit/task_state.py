"""The states that a task can be in after a run of its tests."""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """How the tests of a task ended; also how one of them did."""

    NOT_STARTED = "not started"
    """A stub was reached."""
    CRASHED = "crashed"
    WRONG = "wrong"
    PASSED = "passed"
    SKIPPED = "skipped"
    """It can't run here; costs no points."""
