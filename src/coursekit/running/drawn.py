"""Tests with examples that Hypothesis draws: what the code raised is what the learner sees.

After a failure, Hypothesis repeats the test hundreds of times, in search of a simpler example. At a stub there is
nothing to search for. If a repeated run ends differently, or the time limit interrupts one, it tells only that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from typing import Any

import pytest

from coursekit.running.early_ends import StubReached, TimedOut
from coursekit.running.stubs import chain, reached_stub


class DrawnExamples:
    """A plugin of pytest: a stub ends a test of drawn examples, and any other failure is told as it was raised."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        # Where Hypothesis lets plugins of pytest replace the test that it calls with each example.
        handle = getattr(getattr(item, "obj", None), "hypothesis", None)
        if handle is None:
            return (yield)
        own, failures = handle.inner_test, list[BaseException]()
        handle.inner_test = _observed(own, failures)
        try:
            return (yield)
        except BaseException as error:
            if failures and _hides_failures(error):
                raise failures[-1] from failures[-1].__cause__
            raise
        finally:
            handle.inner_test = own
            failures.clear()


def _observed(test: Callable[..., None], failures: list[BaseException]) -> Callable[..., None]:
    """The test, but a stub ends it, and the latest failure is kept in the list."""
    from hypothesis.errors import HypothesisException  # slow to import, and loaded where it is needed

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            test(*args, **kwargs)
        except HypothesisException:  # such as an example that `assume` refuses
            raise
        except (Exception, pytest.fail.Exception) as error:
            if reached_stub(error) is not None:
                raise StubReached from error
            failures[:] = [error]
            raise

    return run


def _hides_failures(error: BaseException) -> bool:
    """Whether the repeated runs failed in another way than the first one."""
    from hypothesis.errors import Flaky

    return isinstance(error, Flaky) or any(isinstance(link, TimedOut) for link in chain(error))
