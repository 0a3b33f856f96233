"""Likely causes: the usual mistakes, recognised by what they do to the numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# Above this many numbers the search for a cause would take longer than the test.
LARGEST = 1_000_000
MOST_AXES = 5
# Fewer numbers than this agree with some pattern by chance.
FEWEST = 4


@dataclass(frozen=True)
class Axes:
    """How to speak of an array's axes: by the names given, or by number."""

    names: tuple[str, ...] | None
    labels: tuple[str, ...]

    @classmethod
    def of(cls, axes: str | None, ndim: int) -> Axes:
        """Axes named as in ``"B H L D"``; numbered when there are no names, or not as many as axes."""
        names = tuple(axes.split()) if axes else ()
        if len(names) == ndim and ndim:
            return cls(names, tuple(f"axis {name}" for name in names))
        return cls(None, tuple(f"axis {i}" for i in range(ndim)))


@dataclass(frozen=True)
class _Case:
    """What a cause is looked for in; ``same`` compares within the test's tolerances, infinities included."""

    actual: np.ndarray
    expected: np.ndarray
    axes: Axes
    rtol: float
    atol: float

    def same(self, one: Any, other: Any) -> bool:
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return False
        with np.errstate(invalid="ignore"):
            return bool(np.allclose(one, other, self.rtol, self.atol, equal_nan=True))

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.actual).all() and np.isfinite(self.expected).all())

    @property
    def varied(self) -> bool:
        """Enough different numbers expected for a pattern to mean something."""
        return len(np.unique(self.expected)) >= FEWEST


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
    """The first mistake that explains ``actual``, in plain words; ``None`` when none is recognised.

    ``suspects`` (mistake -> the array that it gives, or a function that computes it) are tried first, then
    ``inputs`` (name -> array) that came back unchanged, then the mistakes that are common everywhere.
    """
    if actual.size > LARGEST or expected.size > LARGEST or actual.dtype.kind not in "fiub":
        return None
    # float64 holds every float32 and every small integer exactly, and has no unsigned wrap-around.
    case = _Case(
        actual.astype(np.float64),
        np.asarray(expected).astype(np.float64),
        Axes.of(axes, expected.ndim),
        rtol,
        atol,
    )
    for mistake, given in (suspects or {}).items():
        if case.same(case.actual, given() if callable(given) else given):
            return mistake
    for name, array in (inputs or {}).items():
        if case.same(case.actual, array):
            return f"this is {name}, unchanged"
    causes = _SHAPE_CAUSES if actual.shape != expected.shape else _VALUE_CAUSES
    return next((text for cause in causes if (text := cause(case)) is not None), None)


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
    if len(actual) == len(expected) and actual[1:] == expected[:-1]:
        return "everything is one place late (off by one)"
    if len(actual) == len(expected) and actual[:-1] == expected[1:]:
        return "everything is one place early (off by one)"
    return None


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


def _transposed(case: _Case) -> str | None:
    if not 2 <= case.expected.ndim <= MOST_AXES or case.actual.ndim != case.expected.ndim or not case.varied:
        return None
    for order in _permutations(case.expected.ndim):
        if case.same(case.actual, case.expected.transpose(order)):
            return _moved(order, case.axes)
    return None


def _transposed_shape(case: _Case) -> str | None:
    if not 2 <= case.expected.ndim <= MOST_AXES or case.actual.ndim != case.expected.ndim:
        return None
    sizes = case.expected.shape
    fitting = [o for o in _permutations(len(sizes)) if tuple(sizes[i] for i in o) == case.actual.shape]
    return _moved(fitting[0], case.axes) + ", as far as the shape tells" if fitting else None


def _other_shape(case: _Case) -> str | None:
    if case.actual.size != case.expected.size or not case.same(case.actual.ravel(), case.expected.ravel()):
        return None
    if case.same(np.squeeze(case.actual), np.squeeze(case.expected)):
        return "the numbers are right; an axis of size 1 is missing, too many or elsewhere"
    return "the numbers are right and in order; only the shape is not"


def _missing_broadcast(case: _Case) -> str | None:
    try:
        spread = np.broadcast_to(case.actual, case.expected.shape)
    except ValueError:
        return None
    if case.same(spread, case.expected):
        return "the numbers are right once repeated (broadcast) to the expected shape"
    return None


def _one_row_more_or_less(case: _Case) -> str | None:
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


def _all_zeros(case: _Case) -> str | None:
    if case.actual.size and not case.actual.any() and case.expected.any():
        return "everything is zero: the result was never filled in"
    return None


def _mask_not_infinite(case: _Case) -> str | None:
    masked = np.isneginf(case.expected)
    if not masked.any() or not np.isfinite(case.actual).all():
        return None
    if (case.actual[masked] < -1e3).all():
        return "a large negative number stands where −inf is expected"
    if case.same(case.actual, ~masked) or case.same(case.actual, masked):
        return "this mask holds 1 and 0 (or True and False); it is added to the scores, so 0 and −inf are expected"
    return "nothing is masked: −inf is expected there"


def _mask_elsewhere(case: _Case) -> str | None:
    """A causal mask along the last two axes [L, S] whose diagonal is not the bottom-right one."""
    if case.expected.ndim < 2 or case.expected.size == 0:
        return None
    hidden = _hidden(case.expected), _hidden(case.actual)
    rows, columns = case.expected.shape[-2:]
    right = ~np.tri(rows, columns, columns - rows, dtype=bool)
    if not hidden[0].any() or not (hidden[0] == right).all() or (hidden[1] == hidden[0]).all():
        return None
    elsewhere = (
        (
            0,
            "the mask is aligned top-left; with L ≠ S it must be aligned bottom-right (the last query sees all)",
        ),
        (columns - rows - 1, "off by one: the mask hides the diagonal too (a token must see itself)"),
        (columns - rows + 1, "off by one: the mask lets each token see the one after it"),
    )
    for diagonal, text in elsewhere:
        if (hidden[1] == ~np.tri(rows, columns, diagonal, dtype=bool)).all():
            return text
    if (hidden[1] == ~right).all():
        return "the mask is inverted: it hides what may be seen and shows what may not"
    return "the mask is upside down or transposed" if (hidden[1] == np.tri(rows, columns, -1)).all() else None


def _hidden(mask: np.ndarray) -> np.ndarray:
    """Where an additive mask hides (−inf), or a 0/1 one (0)."""
    infinite = np.isneginf(mask)
    return infinite if infinite.any() or not np.isin(mask, (0, 1)).all() or not mask.any() else mask == 0


def _whole_rows_nan(case: _Case) -> str | None:
    wrong = np.isnan(case.actual)
    if not wrong.any() or np.isnan(case.expected).any():
        return None
    if case.actual.ndim and (wrong.all(axis=-1) == wrong.any(axis=-1)).all():
        return (
            "whole rows are NaN: exp of large numbers (subtract the row's maximum first), "
            "or inf − inf or 0/0 in a row where everything is masked"
        )
    return None


def _sign_flipped(case: _Case) -> str | None:
    return "the sign is flipped" if case.finite and case.same(case.actual, -case.expected) else None


def _constant_factor(case: _Case) -> str | None:
    if not case.finite or not case.varied:
        return None
    weights = case.expected.ravel()
    factor = float(weights @ case.actual.ravel() / (weights @ weights))
    if factor == 0.0 or not case.same(case.actual, factor * case.expected):
        return None
    return f"every value is {factor:.6g} times the expected one{_named_factor(factor, case)}"


def _named_factor(factor: float, case: _Case) -> str:
    names = case.axes.names or tuple(f"the size of axis {i}" for i in range(case.expected.ndim))
    for name, size in zip(names, case.expected.shape, strict=True):
        if size < 2:
            continue
        forms = ((f"√{name}", math.sqrt(size)), (f"1/√{name}", 1 / math.sqrt(size)))
        forms += ((name, float(size)), (f"1/{name}", 1 / size))
        for form, value in forms:
            if math.isclose(abs(factor), value, rel_tol=1e-4):
                return f" ({'−' if factor < 0 else ''}{form}, with {name} = {size})"
    return ""


def _constant_offset(case: _Case) -> str | None:
    if not case.finite or not case.varied:
        return None
    offset = float(np.mean(case.actual - case.expected))
    if not case.same(case.actual, case.expected + offset):
        return None
    return f"every value is {abs(offset):.6g} too {'large' if offset > 0 else 'small'}"


def _reversed(case: _Case) -> str | None:
    if not case.varied:
        return None
    for axis, label in enumerate(case.axes.labels):
        if case.expected.shape[axis] > 1 and case.same(case.actual, np.flip(case.expected, axis)):
            return f"{label} is in reverse order"
    return None


def _shifted(case: _Case) -> str | None:
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


def _factor_per_row(case: _Case) -> str | None:
    """Right up to one factor a row: a normalisation is missing, or runs along another axis."""
    if not case.finite or not case.varied or case.expected.ndim < 2 or case.expected.shape[-1] < 3:
        return None
    weights = np.sum(case.expected * case.expected, axis=-1, keepdims=True)
    if (weights == 0).any():
        return None
    factor = np.sum(case.expected * case.actual, axis=-1, keepdims=True) / weights
    if (factor == 0).any() or not case.same(case.actual, factor * case.expected):
        return None
    return (
        f"each row along {case.axes.labels[-1]} is right up to a factor of its own: "
        "a normalisation is missing or runs along another axis"
    )


def _scrambled(case: _Case) -> str | None:
    if not case.varied or case.expected.ndim == 0:
        return None
    if case.expected.ndim <= MOST_AXES:
        flat = case.actual.ravel()
        for order in _permutations(case.expected.ndim):
            if case.same(flat, case.expected.transpose(order).ravel()):
                return (
                    "the right numbers, read in another order: a reshape took the place of a transpose "
                    f"({_moved(order, case.axes)} before the reshape)"
                )
    if case.same(np.sort(case.actual.ravel()), np.sort(case.expected.ravel())):
        return "the same numbers in another order: is there a reshape where a transpose is needed?"
    return None


_Cause = Callable[[_Case], str | None]
_SHAPE_CAUSES: tuple[_Cause, ...] = (
    _transposed,
    _other_shape,
    _missing_broadcast,
    _one_row_more_or_less,
    _transposed_shape,
)
_VALUE_CAUSES: tuple[_Cause, ...] = (
    _all_zeros,
    _mask_elsewhere,
    _mask_not_infinite,
    _whole_rows_nan,
    _sign_flipped,
    _constant_factor,
    _constant_offset,
    _transposed,
    _reversed,
    _shifted,
    _factor_per_row,
    _scrambled,
)
