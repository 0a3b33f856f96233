"""Likely causes: the usual mistakes, recognised by what they do to the numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from coursekit.checking import mistakes_mask, mistakes_order, mistakes_value
from coursekit.checking.cases import Axes, Case

# Above this many numbers the search for a cause would take longer than the test.
LARGEST = 1_000_000
SUSPECT_RTOL = 1e-6
EITHER = "; or "  # between mistakes that can't be told apart by what they give
# Fewer different items than this stand one place on by chance.
FEWEST_ITEMS = 3

Cause = Callable[[Case], str | None]
SHAPE_CAUSES: tuple[Cause, ...] = (
    mistakes_order.transposed,
    mistakes_order.other_shape,
    mistakes_order.missing_broadcast,
    mistakes_order.one_row_more_or_less,
    mistakes_order.transposed_shape,
)
VALUE_CAUSES: tuple[Cause, ...] = (
    mistakes_mask.mask_elsewhere,
    mistakes_mask.zero_times_infinity,
    mistakes_mask.mask_not_infinite,
    mistakes_value.whole_rows_nan,
    mistakes_value.sign_flipped,
    mistakes_value.constant_factor,
    mistakes_value.constant_offset,
    mistakes_order.transposed,
    mistakes_order.in_reverse,
    mistakes_order.shifted,
    mistakes_value.factor_per_row,
    mistakes_order.scrambled,
)


def find_cause(
    actual: np.ndarray,
    expected: np.ndarray,
    *,
    axes: str | None = None,
    suspects: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> str | None:
    """The mistake that explains ``actual``, in plain words; ``None`` when none is recognised.

    ``suspects`` (mistake -> the array that it gives, or a function that computes it) are tried first, and all that
    give the same are named; then
    ``inputs`` (name -> array) that came back unchanged, then the mistakes that are common everywhere.
    """
    if actual.size > LARGEST or expected.size > LARGEST or actual.dtype.kind not in "fiub":
        return None
    if not expected.size:  # whatever is found, no number of it is wrong: every cause would seem to fit
        return None
    # float64 holds every float32 and every small integer exactly, and has no unsigned wrap-around.
    case = Case(
        actual.astype(np.float64),
        np.asarray(expected).astype(np.float64),
        Axes.of(axes, expected.ndim),
        rtol,
        atol,
    )
    # An exact comparison (rtol 0) would miss a suspect by the rounding of the learner's own arithmetic.
    near = replace(case, rtol=max(rtol, SUSPECT_RTOL))
    fitting = []
    for mistake, given in (suspects or {}).items():
        try:
            suspected = given() if callable(given) else given
        except Exception as error:  # a slip in the test must not hide what the learner's code gave
            return f"unknown; the test could not try {mistake!r} ({type(error).__name__}: {error})"
        if near.same(case.actual, suspected) and not case.same(suspected, case.expected):
            fitting.append(mistake)
    if fitting:
        return EITHER.join(fitting)
    for name, array in (inputs or {}).items():
        if case.same(case.actual, array):
            return f"this is {name}, unchanged"
    causes = SHAPE_CAUSES if actual.shape != expected.shape else VALUE_CAUSES
    return next((text for cause in causes if (text := cause(case)) is not None), None)


def find_plain_suspect(actual: Any, expected: Any, suspects: Mapping[str, Any]) -> str | None:
    """The mistakes (each with the plain value that it gives) that give ``actual``; ``None`` when none does."""
    return EITHER.join(mistake for mistake, given in suspects.items() if actual == given != expected) or None


def find_plain_cause(actual: list[Any], expected: list[Any]) -> str | None:
    """The mistake that turned one list into the other, in plain words; ``None`` when none is recognised."""
    if len(expected) < 2:
        return None
    if actual == expected[:-1]:
        return "the last item is missing"
    if actual == expected[1:]:
        return "the first item is missing"
    if actual[:-1] == expected:
        return "there is one item too many at the end"
    if actual[1:] == expected:
        return "there is one item too many at the beginning"
    if actual == expected[::-1]:
        return "the order is reversed"
    if len(actual) != len(expected) or len(expected) < 3:
        return None
    if all(actual.count(item) == expected.count(item) for item in expected):
        return "the right items, in another order"
    if actual[1:] == expected[:-1] and _vary(actual[1:]):
        return "everything is one place late (off by one)"
    if actual[:-1] == expected[1:] and _vary(expected[1:]):
        return "everything is one place early (off by one)"
    return None


def _vary(items: list[Any]) -> bool:
    """Whether there are enough different items: a few, or equal ones, look the same one place on by chance."""
    return sum(item not in items[:place] for place, item in enumerate(items)) >= FEWEST_ITEMS
