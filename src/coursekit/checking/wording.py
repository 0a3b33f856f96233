"""Numbers and what differs between them, in words."""

from __future__ import annotations

from typing import Any

import numpy as np


def plural(count: int, thing: str) -> str:
    """A count and what is counted: "1 item", "3 items"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def differing(wrong: int, all_of_them: int, thing: str) -> str:
    """How many differ: "1 of 4 values differs", "the value differs" where there is one."""
    if all_of_them == 1:
        return f"the {thing} differs"
    return f"{wrong} of {all_of_them} {thing}s {'differs' if wrong == 1 else 'differ'}"


def apart(expected: Any, actual: Any) -> tuple[str, str]:
    """Two numbers as texts, with as many digits as it takes to tell them apart."""
    if {np.asarray(value).dtype.kind for value in (expected, actual)} != {"f"}:
        return str(expected), str(actual)
    pairs = [(f"{expected:.{digits}g}", f"{actual:.{digits}g}") for digits in (7, 10, 17)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def one_number(found: np.ndarray, expected: np.ndarray) -> list[str]:
    """A line that says so where all values found are equal, as of an array that was made and never filled."""
    if not _varies(expected) or _varies(found):
        return []
    return [f"every value found is {found.flat[0]}"]


def _varies(values: np.ndarray) -> bool:
    return bool((values != values.flat[0]).any())
