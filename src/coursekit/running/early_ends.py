"""How a test can end before its time, as exceptions."""

from __future__ import annotations


class TimedOut(BaseException):
    """The test ran longer than it may, in seconds."""


class StubReached(BaseException):
    """A test with drawn examples reached a stub: the cause."""


class CodeLeft(Exception):
    """The learner's code left the test by a call that is the tests' own, such as `pytest.skip`: the cause."""


class CodeEnded(Exception):
    """The process in which the learner's code runs, apart from the tests, has ended; the message says how."""


class CodeInterrupted(Exception):
    """A line raised KeyboardInterrupt, which came out of the test: the cause."""
