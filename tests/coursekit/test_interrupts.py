"""SIGTERM ends a command with its exit code, wherever the command is."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable

import pytest

from coursekit.interrupts import leaving_when_terminated

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM to send to a process")


class Ending:
    """An object during whose end the signal comes."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def wait() -> None:
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        time.sleep(0.01)


def exit_code_of(work: Callable[[], object], then: Callable[[], object] = lambda: None) -> object:
    with pytest.raises(SystemExit) as left:
        terminated(work, then)
    return left.value.code


def terminated(work: Callable[[], object], then: Callable[[], object]) -> None:
    with leaving_when_terminated():
        work()
        then()


def test_sigterm_ends_the_work_with_its_exit_code() -> None:
    assert exit_code_of(lambda: signal.raise_signal(signal.SIGTERM), wait) == 143


def test_a_sigterm_that_comes_while_an_object_ends_is_not_lost() -> None:
    began = time.monotonic()
    assert exit_code_of(Ending, wait) == 143
    assert time.monotonic() - began < 30, "the signal was heard only when the work was done"


def test_nor_is_one_that_comes_with_the_last_object_of_the_work() -> None:
    assert exit_code_of(Ending) == 143


def test_what_else_is_raised_where_an_object_ends_is_reported_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", reports.append)

    class Broken:
        def __del__(self) -> None:
            raise ValueError("broken")

    with leaving_when_terminated():
        Broken()
    assert [str(getattr(each, "exc_value", each)) for each in reports] == ["broken"]


def test_afterwards_signal_and_reports_are_handled_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM), sys.unraisablehook
    with leaving_when_terminated():
        assert signal.getsignal(signal.SIGTERM) != before[0]
    with pytest.raises(ValueError, match="broken"), leaving_when_terminated():
        raise ValueError("broken")
    assert (signal.getsignal(signal.SIGTERM), sys.unraisablehook) == before
