"""Names the cause where the learner's scheduler looks up a number that isn't there: what it took for what."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from coursekit.check import CheckFailed


def with_places_told(state: Any, name: str, call: Callable[[], Any]) -> Any:
    """Call it; where it ends in an IndexError, and ranks or seats aren't the places in line, say so."""
    __tracebackhide__ = True
    try:
        return call()
    except IndexError as error:
        line = [(seat, running.rank) for seat, running in state.line]
        if all(max(numbers) < len(line) for numbers in line):
            raise
        raise CheckFailed(
            f"{name}: IndexError: {error}\n  likely cause: a request's seat or rank was taken for its place in line; "
            f"the places are 0 to {len(line) - 1}, and (seat, rank) in the order of the line {line}"
        ) from error


def with_rows_told(took_part: int, seats: int, name: str, call: Callable[[], Any]) -> Any:
    """Call it; where it ends in an IndexError in an array with a row for each seat that takes part, say so."""
    __tracebackhide__ = True
    try:
        return call()
    except IndexError as error:
        if took_part == seats or str(took_part) not in re.findall(r"\d+", str(error)):
            raise
        raise CheckFailed(
            f"{name}: IndexError: {error}\n  likely cause: rows were taken for seats: what `run` returns has a row "
            f"for each of the {took_part} seats that take part, not for each of the {seats} seats"
        ) from error
