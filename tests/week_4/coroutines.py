"""Runs the scenarios of Day 4.6's coroutines so that a test can't hang, and sees what went wrong there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from week_3.patience import hangs, limit
from week_3.serving_threads import within


def run_async(what: str, scenario: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a scenario of `beside_coroutines` or `beside_deltas` returns, or what is raised in it."""
    __tracebackhide__ = True
    seconds, failures = limit(), list[BaseException]()

    def fail(error: BaseException | None, noted: str) -> None:
        why = f"; on the event loop a callback has raised {noted}" if noted else ""
        failures.append(hangs(f"{what} has not ended after {seconds:g} s{why}") if error is None else error)

    return within(lambda: scenario(seconds, fail, *arguments, **options), what, seconds + 1, failures)
