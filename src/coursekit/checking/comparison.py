"""Comparing one array with the expected one, in an order that finds the plainest difference first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coursekit import lab
from coursekit.checking import arrays
from coursekit.checking.cases import Axes
from coursekit.checking.causes import find_cause

Suspects = Mapping[str, Any]


class CheckFailed(AssertionError):
    """The learner's result is not the expected one; the message says how, in a few lines."""


class Comparison:
    """One comparison of an array: its names and tolerances, and the checks in their order."""

    def __init__(
        self,
        name: str,
        axes: str | None,
        rtol: float,
        atol: float,
        suspects: Suspects,
        inputs: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.axes = axes
        self.rtol = rtol
        self.atol = atol
        self.suspects = suspects
        self.inputs = inputs

    def run(self, actual: Any, expected: np.ndarray, dtype: str | None, framework: str | None) -> None:
        __tracebackhide__ = True
        self._check_type(actual, expected, framework)
        values = arrays.to_numpy(actual)
        self._check_shape(values, expected)
        self._check_dtype(arrays.dtype_name(actual), expected, dtype)
        if expected.dtype.kind in "fc":
            self._check_special(values, expected)
        self._check_values(values, expected)

    def _check_type(self, actual: Any, expected: np.ndarray, framework: str | None) -> None:
        __tracebackhide__ = True
        wanted = wanted_framework(framework)
        found = arrays.framework(actual)
        if found is None or (wanted is not None and found != wanted):
            raise CheckFailed(f"{self.name}: {wanted_array(framework)} expected, {kind_of(actual)} found")

    def _check_shape(self, actual: np.ndarray, expected: np.ndarray) -> None:
        __tracebackhide__ = True
        if actual.shape == expected.shape:
            return
        axes = Axes.of(self.axes, expected.ndim)
        lines = [f"shape {_shape(expected, axes)} expected, {list(actual.shape)} found"]
        if actual.ndim != expected.ndim:
            lines.append(f"{expected.ndim} axes expected, {actual.ndim} found")
        else:
            pairs = zip(axes.labels, expected.shape, actual.shape, strict=True)
            lines += [f"{label}: {e} expected, {a} found" for label, e, a in pairs if e != a]
        self._fail(lines, actual, expected)

    def _check_dtype(self, found: str, expected: np.ndarray, dtype: str | None) -> None:
        __tracebackhide__ = True
        kind = expected.dtype.kind
        if kind == "f" and dtype is not None and found != dtype:
            cause = ""
            if found == "float64":
                cause = "\n  likely cause: a float64 array or table came in (NumPy makes them by default): convert it"
            raise CheckFailed(f"{self.name}: dtype {dtype} expected, {found} found{cause}")
        if kind == "b" and found != "bool":
            raise CheckFailed(f"{self.name}: dtype bool expected, {found} found")
        if kind in "iu":
            exact = dtype is not None and "int" in dtype
            if (exact and found != dtype) or "int" not in found:
                raise CheckFailed(
                    f"{self.name}: dtype {dtype if exact else 'integer'} expected, {found} found"
                )

    def _check_special(self, actual: np.ndarray, expected: np.ndarray) -> None:
        """NaN where none belongs, and infinities that are not where, or not as, they are expected."""
        __tracebackhide__ = True
        cases = (
            ("is NaN", "are NaN", np.isnan(actual) & ~np.isnan(expected)),
            ("should be NaN", "should be NaN", ~np.isnan(actual) & np.isnan(expected)),
            ("is infinite", "are infinite", np.isinf(actual) & np.isfinite(expected)),
            ("should be infinite", "should be infinite", np.isinf(expected) & (actual != expected)),
        )
        for one, many, wrong in cases:
            count = int(wrong.sum())
            if count:
                first = tuple(int(i) for i in np.argwhere(wrong)[0])
                verb = one if count == 1 else many
                lines = [
                    f"{count} of {actual.size} values {verb}",
                    f"the first at {self._place(first, expected)}: {_both(actual, expected, first)}",
                ]
                self._fail(lines, actual, expected)

    def _check_values(self, actual: np.ndarray, expected: np.ndarray) -> None:
        __tracebackhide__ = True
        if expected.dtype.kind not in "fc":
            wrong = actual != expected
            if wrong.any():
                first = tuple(int(i) for i in np.argwhere(wrong)[0])
                lines = [
                    f"{int(wrong.sum())} of {actual.size} values differ",
                    f"the first at {self._place(first, expected)}: {_both(actual, expected, first)}",
                ]
                self._fail(lines, actual, expected)
            return
        with np.errstate(invalid="ignore"):
            wrong = ~np.isclose(actual, expected, self.rtol, self.atol, equal_nan=True)
            error = np.where(wrong, np.abs(actual.astype(np.float64) - expected), 0.0)
        if not wrong.any():
            return
        worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
        largest = np.abs(np.where(np.isfinite(expected), expected, 0.0)).max()
        lines = [
            f"{int(wrong.sum())} of {actual.size} values differ by more than rtol {self.rtol:g}, atol {self.atol:g}",
            f"the worst at {self._place(worst, expected)}: {_both(actual, expected, worst)}",
            f"largest error: {error.max():.3g}, among values of up to {largest:.3g}",
        ]
        self._fail(lines, actual, expected)

    def _place(self, index: tuple[int, ...], expected: np.ndarray) -> str:
        names = Axes.of(self.axes, expected.ndim).names
        if names is None:
            return "[" + ", ".join(map(str, index)) + "]"
        return "[" + ", ".join(f"{n}={i}" for n, i in zip(names, index, strict=True)) + "]"

    def _fail(self, lines: list[str], actual: np.ndarray, expected: np.ndarray) -> None:
        __tracebackhide__ = True
        cause = find_cause(
            actual,
            expected,
            axes=self.axes,
            suspects=self.suspects,
            inputs=self.inputs,
            rtol=self.rtol,
            atol=self.atol,
        )
        if cause:
            lines.append(f"likely cause: {cause}")
        raise CheckFailed(f"{self.name}: " + "\n  ".join(lines))


def wanted_framework(framework: str | None) -> str | None:
    """The framework that a result must be of: the one named, else that of the run; None if any will do."""
    running = lab.active_or_none()
    return framework or (running.backend if running else None)


def wanted_array(framework: str | None) -> str:
    """What a result must be, with its article: "a torch tensor"."""
    return arrays.ARTICLES.get(wanted_framework(framework) or "", "an array")


def kind_of(value: Any) -> str:
    """What a value is, with its article: "a torch tensor", "a list", "an int"."""
    found = arrays.framework(value)
    if found is not None:
        return arrays.ARTICLES[found]
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _shape(array: np.ndarray, axes: Axes) -> str:
    sizes = str(list(array.shape))
    return sizes if axes.names is None else f"{sizes} ({', '.join(axes.names)})"


def _both(actual: np.ndarray, expected: np.ndarray, index: tuple[int, ...]) -> str:
    return f"{_number(expected[index])} expected, {_number(actual[index])} found"


def _number(value: Any) -> str:
    return f"{value:.7g}" if np.asarray(value).dtype.kind == "f" else str(value)
