"""Comparing one array with the expected one, in an order that finds the plainest difference first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from coursekit import arrays, lab
from coursekit.checking.cases import Axes
from coursekit.checking.causes import find_cause
from coursekit.checking.wording import apart, differing, one_number, plural

Suspects = Mapping[str, Any]

FLOAT64_CAME_IN = "something was made float64 on the way: an array or table of NumPy's, or a conversion"
FLOAT64_MADE = "NumPy computes in float64 unless told otherwise: round the finished numbers to float32"

# What float arithmetic in another order may change. bfloat16 keeps 8 bits of a number, float16 keeps 11.
TOLERANCES = {"float32": (1e-5, 1e-6), "bfloat16": (1.6e-2, 1e-2), "float16": (2e-3, 1e-3)}


class CheckFailed(AssertionError):
    """The learner's result is not the expected one; the message says how, in a few lines."""


class Comparison:
    """One comparison of an array: its names and tolerances, and the checks in their order."""

    def __init__(
        self,
        name: str,
        axes: str | None,
        rtol: float = 0.0,
        atol: float = 0.0,
        suspects: Suspects | None = None,
        inputs: Mapping[str, Any] | None = None,
        nan: str | None = None,
    ) -> None:
        self.name = name
        self.axes = axes
        self.rtol = rtol
        self.atol = atol
        self.suspects = suspects or {}
        self.inputs = inputs or {}
        self.nan = nan

    def run(self, actual: Any, expected: np.ndarray, dtype: str | None, framework: str | None) -> None:
        __tracebackhide__ = True
        self._check_type(actual, framework)
        values = arrays.to_numpy(actual)
        self._check_shape(values, expected)
        self._check_dtype(arrays.dtype_name(actual), expected, dtype, framework)
        if expected.dtype.kind in "fc":
            self._check_special(values, expected)
        self._check_values(values, expected)

    def check_shape(self, actual: Any, shape: tuple[int, ...], framework: str | None) -> np.ndarray:
        """A NumPy copy of ``actual``, which must be an array of this shape."""
        __tracebackhide__ = True
        self._check_type(actual, framework)
        values = arrays.to_numpy(actual)
        if values.shape != shape:
            raise CheckFailed(f"{self.name}: " + "\n  ".join(self._shape_lines(values.shape, shape)))
        return values

    def _check_type(self, actual: Any, framework: str | None) -> None:
        __tracebackhide__ = True
        wanted = wanted_framework(framework)
        found = arrays.framework(actual)
        if found is None or (wanted is not None and found != wanted):
            raise CheckFailed(f"{self.name}: {wanted_array(framework)} expected, {kind_of(actual)} found")

    def _check_shape(self, actual: np.ndarray, expected: np.ndarray) -> None:
        __tracebackhide__ = True
        if actual.shape == expected.shape:
            return
        self._fail(self._shape_lines(actual.shape, expected.shape), actual, expected)

    def _shape_lines(self, actual: tuple[int, ...], expected: tuple[int, ...]) -> list[str]:
        """What was expected and found, and each axis whose size differs where there are as many axes."""
        axes = Axes.of(self.axes, len(expected))
        named = f" ({', '.join(axes.names)})" if axes.names is not None else ""
        lines = [f"shape {list(expected)}{named} expected, {list(actual)} found"]
        if len(actual) == len(expected):
            pairs = zip(axes.labels, expected, actual, strict=True)
            lines += [f"{label}: {e} expected, {a} found" for label, e, a in pairs if e != a]
        return lines

    def _check_dtype(
        self, found: str, expected: np.ndarray, dtype: str | None, framework: str | None
    ) -> None:
        __tracebackhide__ = True
        kind = expected.dtype.kind
        if kind == "f" and dtype is not None and found != dtype:
            cause = ""
            if found == "float64":
                cause = f"\n  likely cause: {FLOAT64_MADE if framework == 'numpy' else FLOAT64_CAME_IN}"
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
        infinite = np.isinf(actual), np.isinf(expected)
        cases = (
            ("NaN", np.isnan(actual) & ~np.isnan(expected)),
            ("not NaN and should be", ~np.isnan(actual) & np.isnan(expected)),
            ("infinite and should not be", infinite[0] & ~infinite[1]),
            ("finite and should be infinite", ~infinite[0] & infinite[1]),
            ("infinite with the wrong sign", infinite[0] & infinite[1] & (actual != expected)),
        )
        for what, wrong in cases:
            count = int(wrong.sum())
            if count:
                verb = "is" if count == 1 else "are"
                lines = [f"{count} of {plural(actual.size, 'value')} {verb} {what}"]
                known = self.nan if what == "NaN" else None
                self._fail([*lines, self._first(wrong, actual, expected)], actual, expected, known)

    def _check_values(self, actual: np.ndarray, expected: np.ndarray) -> None:
        __tracebackhide__ = True
        if expected.dtype.kind not in "fc":
            wrong = actual != expected
            if wrong.any():
                lines = [
                    differing(int(wrong.sum()), actual.size, "value"),
                    self._first(wrong, actual, expected),
                ]
                self._fail([*lines, *one_number(actual, expected)], actual, expected)
            return
        with np.errstate(invalid="ignore"):
            wrong = ~np.isclose(actual, expected, self.rtol, self.atol, equal_nan=True)
            error = np.where(wrong, np.abs(actual.astype(np.float64) - expected), 0.0)
        if not wrong.any():
            return
        worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))
        largest = np.abs(np.where(np.isfinite(expected), expected, 0.0)).max()
        count = differing(int(wrong.sum()), actual.size, "value")
        lines = [
            f"{count} by more than rtol {self.rtol:g}, atol {self.atol:g}",
            self._at("worst", worst, actual, expected),
            f"largest error: {error.max():.3g}, among values of up to {largest:.3g}",
            *one_number(actual, expected),
        ]
        self._fail(lines, actual, expected)

    def _first(self, wrong: np.ndarray, actual: np.ndarray, expected: np.ndarray) -> str:
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        return self._at("first", index, actual, expected)

    def _at(self, which: str, index: tuple[int, ...], actual: np.ndarray, expected: np.ndarray) -> str:
        """What was expected and found at an index; a single number has no place to name."""
        both = "{} expected, {} found".format(*apart(expected[index], actual[index]))
        return f"the {which} at {self._place(index, expected)}: {both}" if index else both

    def _place(self, index: tuple[int, ...], expected: np.ndarray) -> str:
        names = Axes.of(self.axes, expected.ndim).names
        if names is None:
            return "[" + ", ".join(map(str, index)) + "]"
        return "[" + ", ".join(f"{n}={i}" for n, i in zip(names, index, strict=True)) + "]"

    def _fail(
        self, lines: list[str], actual: np.ndarray, expected: np.ndarray, known: str | None = None
    ) -> None:
        """Raise, with the likely cause: the one known beforehand, or one that the numbers tell."""
        __tracebackhide__ = True
        cause = known or find_cause(
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


def part_of_each(suspects: Suspects, position: int, expected: tuple[Any, ...]) -> Suspects:
    """The suspects of one part of a tuple whose earlier parts were right: those that are right there as well."""

    def same(one: Any, other: Any) -> bool:
        return np.shape(one) == np.shape(other) and bool(np.allclose(one, other, equal_nan=True))

    def part(given: Any) -> Any:
        def value() -> Any:
            parts = given() if callable(given) else given
            fits = all(same(parts[i], expected[i]) for i in range(position))
            return parts[position] if fits else np.empty(0)

        return value

    return {mistake: part(given) for mistake, given in suspects.items()}
