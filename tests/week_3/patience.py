"""How long Day 3.7's tests wait for something that must happen, and how they say that it has not."""

from __future__ import annotations

import threading

from .beside_answers import Mistake as Mistake

LIMIT = 5.0
"""Seconds: what has not happened by then is taken to hang."""

SHORT = 1.0
"""The same, once two tests have waited in vain: several mistakes together must not take minutes to be told."""

waited_in_vain: list[str] = []


def mistake(what: str) -> BaseException:
    """What to raise in code that the batcher calls: a failure in the test's own thread, a Mistake in the loop's."""
    return AssertionError(what) if threading.current_thread() is threading.main_thread() else Mistake(what)


def limit(short: float = SHORT) -> float:
    """How many seconds to wait now; `short` of them in a run that has seen two hang."""
    return LIMIT if len(waited_in_vain) < 2 else short


def hangs(what: str) -> AssertionError:
    """The failure of a test that has waited in vain: raise it."""
    waited_in_vain.append(what)
    return AssertionError(what)
