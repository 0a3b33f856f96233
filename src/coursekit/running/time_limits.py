"""How long a test may take, and how a process ends in which one takes longer.

A signal interrupts the test, by pytest-timeout, and shows where it was. That fails where compiled code runs, which
sees no signal, and where the code catches every exception. So a thread of `faulthandler`, which needs no interpreter,
ends the process a little later.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import re
import signal
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

import pytest

from coursekit.manifest import Task
from coursekit.paths import Course
from coursekit.running.early_ends import TimedOut

GRACE = 5.0
"""Seconds after its limit at which a test's process is ended."""
COLLECTING = 300.0
"""Seconds for reading the tests' files and importing the frameworks, on a slow disk."""
IMPORTS_TORCH = re.compile(r"^(import|from) torch\b", re.MULTILINE)
APART = 3
"""How many times as long a test may take where the code is in another process: each call crosses over to it."""
LEAVING = 20.0
"""Seconds for what is left when the tests are done."""


class TimeLimits:
    """A plugin of pytest: each test of a task has its task's limit, unless one is asked for otherwise."""

    def __init__(self, config: pytest.Config, course: Course, faults: TextIO | None) -> None:
        self._asked = config.getoption("timeout", None)
        self._usual = float(config.getini("timeout") or 0)
        self._faults = None if config.getoption("usepdb") or config.getoption("trace") else faults
        self._reference = course.solution()
        self._apart = bool(config.getoption("package_folder", None))
        self._files: set[str] = set()
        self._end_after(COLLECTING)

    def set_limit(self, item: pytest.Item, task: Task) -> None:
        """Give a test its task's limit, unless the test has a mark of its own or the command line names a limit."""
        self._files.update(ref.file for ref in task.implements)
        if self._asked is None and item.get_closest_marker("timeout") is None:
            seconds = task.seconds * (APART if self._apart else 1)
            item.add_marker(pytest.mark.timeout(min(seconds, self._usual) if self._usual else seconds))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Import torch where the tasks need it: that takes seconds, for which the first limit has no room."""
        files = [self._reference / file for file in self._files]
        if not session.config.option.collectonly and any(map(_imports_torch, files)):
            with contextlib.suppress(ImportError):  # the first test that needs it says why it can't
                importlib.import_module("torch")

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> bool | None:
        """Set pytest-timeout's timer, but let it raise what nothing takes for a failure of the code.

        `pytest.fail`, which it would call, is an example to Hypothesis, which then runs the same code once more.
        """
        # Not earlier: pytest rewrites the asserts of its plugins on import, and warns where it comes too late.
        from pytest_timeout import is_debugging  # type: ignore[import-untyped]

        if settings.method != "signal":
            return None

        def interrupt(number: int, frame: FrameType | None) -> None:
            if not is_debugging():
                raise TimedOut(settings.timeout)

        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, settings.timeout)
        item.cancel_timeout = _cancel_timer  # type: ignore[attr-defined]
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._watch(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        # Once more: pytest takes the time limit back when a test fails, and a thread may hold up the teardown, too.
        self._watch(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._end_after(LEAVING)

    def _watch(self, item: pytest.Item) -> None:
        mark = item.get_closest_marker("timeout")
        limit = self._asked or self._usual
        if mark is not None:
            limit = mark.args[0] if mark.args else mark.kwargs["timeout"]
        if limit > 0:
            self._end_after(limit + GRACE)
        else:
            faulthandler.cancel_dump_traceback_later()

    def _end_after(self, seconds: float) -> None:
        if self._faults is not None:
            faulthandler.dump_traceback_later(seconds, exit=True, file=self._faults)


def _cancel_timer() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _imports_torch(file: Path) -> bool:
    return file.is_file() and IMPORTS_TORCH.search(file.read_text(encoding="utf-8")) is not None
