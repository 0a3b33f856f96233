"""Mistakes of value: the right places, the wrong numbers."""

from __future__ import annotations

import math

import numpy as np

from coursekit.checking.cases import Case


def whole_rows_nan(case: Case) -> str | None:
    wrong = np.isnan(case.actual)
    if not wrong.any() or np.isnan(case.expected).any():
        return None
    if not case.actual.ndim or (wrong.all(axis=-1) != wrong.any(axis=-1)).any():
        return None
    if not case.expected[wrong].any():
        return "the rows that should be 0 are NaN: where everything is hidden, mind inf − inf and 0/0"
    return "whole rows are NaN: look for exp of large numbers, inf − inf, 0 · inf or 0/0"


def sign_flipped(case: Case) -> str | None:
    return "the sign is flipped" if case.finite and case.same(case.actual, -case.expected) else None


def constant_factor(case: Case) -> str | None:
    if not case.finite or not case.varied:
        return None
    weights = case.expected.ravel()
    factor = float(weights @ case.actual.ravel() / (weights @ weights))
    if factor == 0.0 or not case.same(case.actual, factor * case.expected):
        return None
    return f"every value is {factor:.6g} times the expected one{_named_factor(factor, case)}"


def _named_factor(factor: float, case: Case) -> str:
    names = case.axes.names or tuple(f"the size of axis {i}" for i in range(case.expected.ndim))
    for name, size in zip(names, case.expected.shape, strict=True):
        if size < 2:
            continue
        root = math.sqrt(size)
        forms = {f"√{name}": root, f"1/√{name}": 1 / root, name: float(size), f"1/{name}": 1 / size}
        for form, value in forms.items():
            if math.isclose(abs(factor), value, rel_tol=1e-4):
                return f" ({'−' if factor < 0 else ''}{form}, with {name} = {size})"
    return ""


def constant_offset(case: Case) -> str | None:
    if not case.finite or not case.varied:
        return None
    offset = float(np.mean(case.actual - case.expected))
    if not case.same(case.actual, case.expected + offset):
        return None
    return f"every value is {abs(offset):.6g} too {'large' if offset > 0 else 'small'}"


def factor_per_row(case: Case) -> str | None:
    """Right up to one factor per row: what a row is divided by is missing, or another row's."""
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
        "look at what a row is multiplied with or divided by"
    )
