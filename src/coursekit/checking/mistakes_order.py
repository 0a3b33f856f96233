"""Mistakes of order and shape: the right numbers in the wrong places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from coursekit.checking.cases import Axes, Case

MOST_AXES = 5


def _permutations(ndim: int) -> Iterator[tuple[int, ...]]:
    """Every order of the axes but the given one; exchanges of two axes, the usual mistake, come first."""
    identity = tuple(range(ndim))
    orders = [order for order in itertools.permutations(identity) if order != identity]
    return iter(sorted(orders, key=lambda order: sum(a != b for a, b in zip(order, identity, strict=True))))


def _moved(order: tuple[int, ...], axes: Axes) -> str:
    changed = [i for i, j in enumerate(order) if i != j]
    if len(changed) == 2:
        one, other = (axes.labels[i] for i in changed)
        if changed == [len(order) - 2, len(order) - 1] and axes.names is None:
            return "the last two axes are swapped (transposed)"
        return f"{one} and {other} are swapped (transposed)"
    if axes.names is None:
        return f"the axes are in another order (transposed): {list(order)}"
    return f"the axes are in the order {' '.join(axes.names[i] for i in order)} (transposed)"


def transposed(case: Case) -> str | None:
    if not 2 <= case.expected.ndim <= MOST_AXES or case.actual.ndim != case.expected.ndim or not case.varied:
        return None
    for order in _permutations(case.expected.ndim):
        if case.same(case.actual, case.expected.transpose(order)):
            return _moved(order, case.axes)
    return None


def transposed_shape(case: Case) -> str | None:
    if not 2 <= case.expected.ndim <= MOST_AXES or case.actual.ndim != case.expected.ndim:
        return None
    sizes = case.expected.shape
    fitting = [o for o in _permutations(len(sizes)) if tuple(sizes[i] for i in o) == case.actual.shape]
    return _moved(fitting[0], case.axes) + ", as far as the shape tells" if fitting else None


def other_shape(case: Case) -> str | None:
    if case.actual.size != case.expected.size or not case.same(case.actual.ravel(), case.expected.ravel()):
        return None
    if case.same(np.squeeze(case.actual), np.squeeze(case.expected)):
        return "the numbers are right; an axis of size 1 is missing, too many or elsewhere"
    return "the numbers are right and in order; only the shape is not"


def missing_broadcast(case: Case) -> str | None:
    try:
        spread = np.broadcast_to(case.actual, case.expected.shape)
    except ValueError:
        return None
    if case.same(spread, case.expected):
        return "the numbers are right once repeated (broadcast) to the expected shape"
    return None


def one_row_more_or_less(case: Case) -> str | None:
    if case.actual.ndim != case.expected.ndim:
        return None
    changed = [
        i for i, (a, e) in enumerate(zip(case.actual.shape, case.expected.shape, strict=True)) if a != e
    ]
    if len(changed) != 1 or abs(case.actual.shape[changed[0]] - case.expected.shape[changed[0]]) != 1:
        return None
    axis = changed[0]
    more = case.actual.shape[axis] > case.expected.shape[axis]
    long, short = (case.actual, case.expected) if more else (case.expected, case.actual)
    size = short.shape[axis]
    for end, start in (("last", 0), ("first", 1)):
        if size and case.same(np.take(long, range(start, start + size), axis), short):
            which = (
                f"one too many at the {'end' if start == 0 else 'beginning'}"
                if more
                else f"the {end} is missing"
            )
            return f"off by one along {case.axes.labels[axis]}: {which}"
    return None


def in_reverse(case: Case) -> str | None:
    if not case.varied:
        return None
    for axis, label in enumerate(case.axes.labels):
        if case.expected.shape[axis] > 1 and case.same(case.actual, np.flip(case.expected, axis)):
            return f"{label} is in reverse order"
    return None


def shifted(case: Case) -> str | None:
    if not case.varied:
        return None
    for axis, label in enumerate(case.axes.labels):
        size = case.expected.shape[axis]
        if size < 3:
            continue
        early, late = range(size - 1), range(1, size)
        if case.same(np.take(case.actual, late, axis), np.take(case.expected, early, axis)):
            return f"off by one along {label}: each row holds what the row before it should"
        if case.same(np.take(case.actual, early, axis), np.take(case.expected, late, axis)):
            return f"off by one along {label}: each row holds what the row after it should"
    return None


def scrambled(case: Case) -> str | None:
    if not case.varied or case.expected.ndim == 0:
        return None
    if case.expected.ndim <= MOST_AXES:
        flat = case.actual.ravel()
        for order in _permutations(case.expected.ndim):
            if case.same(flat, case.expected.transpose(order).ravel()):
                return (
                    "the right numbers in another order: a reshape where a transpose is needed, or a transpose of "
                    f"other axes, gives them ({_moved(order, case.axes)} before the reshape)"
                )
    if case.same(np.sort(case.actual.ravel()), np.sort(case.expected.ravel())):
        return "the same numbers in another order"
    return None
