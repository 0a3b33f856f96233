"""The ways out of a test that the code under test may not take: each test runs to its end.

`pytest.skip` makes a test count as skipped, and `pytest.exit` ends the whole run. The course's tests may call them;
called by the learner's code, they are failures. So is a KeyboardInterrupt that some line raises, as a test of clean
ways out does: only the one that comes from the keyboard ends the run.
"""

from __future__ import annotations

import re
import traceback
import unittest
from collections.abc import Generator

import pytest

from coursekit.running.early_ends import CodeInterrupted, CodeLeft
from coursekit.running.places import Places

WAYS_OUT = (
    pytest.skip.Exception,
    pytest.xfail.Exception,
    pytest.exit.Exception,
    unittest.SkipTest,
    SystemExit,
)
RAISED = re.compile(r"\braise\b")


class NoWayOut:
    """A plugin of pytest: in every phase of a test it makes failures of such ways out."""

    def __init__(self, places: Places) -> None:
        self._places = places

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        yield from self._kept()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, None, None]:
        yield from self._kept()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, None, None]:
        yield from self._kept()

    def _kept(self) -> Generator[None, None, None]:
        try:
            yield
        except WAYS_OUT as error:
            if self._from_learner(error):
                raise CodeLeft from error
            raise
        except KeyboardInterrupt as error:
            if _raised_by_a_line(error):
                raise CodeInterrupted from error
            raise

    def _from_learner(self, error: BaseException) -> bool:
        frames = traceback.extract_tb(error.__traceback__)
        return any(self._places.is_learners(frame.filename) for frame in frames)


def _raised_by_a_line(error: KeyboardInterrupt) -> bool:
    """Whether a `raise` made it. The one from the keyboard comes between any two lines."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and RAISED.search(frames[-1].line or "") is not None
