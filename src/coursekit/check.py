"""Comparing what the learner's code gives with what it should give, and saying in plain words where they part."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coursekit import arrays, lab
from coursekit.causes import Axes, find_cause, find_plain_cause
from coursekit.stubs import reached_stub

# What float arithmetic in another order may change. bfloat16 keeps 8 bits of a number, float16 keeps 11.
TOLERANCES = {"float32": (1e-5, 1e-6), "bfloat16": (1.6e-2, 1e-2), "float16": (2e-3, 1e-3)}

Suspects = Mapping[str, Any]


class CheckFailed(AssertionError):
    """The learner's result is not the expected one; the message says how, in a few lines."""


def check(
    actual: Any,
    expected: Any,
    *,
    name: str = "the result",
    axes: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    dtype: str | None = "float32",
    framework: str | None = None,
    suspects: Suspects | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> None:
    """Compare in this order: ``None``, type, shape, dtype, NaN and infinity, values.

    Args:
        actual: what the learner's code gave.
        expected: a NumPy array (float64 is best), or nested lists of numbers, for an array; a tuple of those for a
            tuple; an int, float, bool or str for a plain value.
        name: what it is, in the learner's words: "the attention output".
        axes: a name for each axis, "B H L D"; failures speak of them.
        rtol, atol: tolerances; left out, 1e-5 and 1e-6, or what the given half-precision ``dtype`` can hold.
        dtype: what a float array must be; ``None`` accepts any. Integer and bool arrays must be of their kind,
            and of this very dtype when it names an integer one.
        framework: "numpy" where a NumPy array is promised rather than one of the backend.
        suspects: mistake -> the array that it would give (or a function that computes it); named as the likely
            cause when it is what the learner got.
        inputs: name -> array that went in; named when it came back unchanged.

    Raises:
        CheckFailed: they differ.
    """
    __tracebackhide__ = True
    if isinstance(expected, (bool, int, float, str, np.generic)):
        _check_plain(actual, expected, name, rtol, atol)
        return
    if actual is None:
        raise CheckFailed(f"{name}: None found, {_kind(expected)} expected; is a `return` missing?")
    if isinstance(expected, tuple):
        _check_tuple(actual, expected, name)
        for position, (part, wanted) in enumerate(zip(actual, expected, strict=True)):
            check(
                part,
                wanted,
                name=f"{name}[{position}]",
                axes=axes,
                rtol=rtol,
                atol=atol,
                dtype=dtype,
                framework=framework,
                inputs=inputs,
            )
        return
    default = TOLERANCES.get(dtype or "float32", TOLERANCES["float32"])
    comparison = _Comparison(
        name=name,
        axes=axes,
        rtol=default[0] if rtol is None else rtol,
        atol=default[1] if atol is None else atol,
        suspects=suspects or {},
        inputs=inputs or {},
    )
    comparison.run(actual, np.asarray(expected), dtype, framework)


def check_equal(actual: Any, expected: Any, *, name: str = "the result") -> None:
    """Compare plain values (ids, strings, lists, dictionaries) for equality.

    Raises:
        CheckFailed: they differ; the message says at which item.
    """
    __tracebackhide__ = True
    if actual is None and expected is not None:
        raise CheckFailed(f"{name}: None found, {_show(expected)} expected; is a `return` missing?")
    if not _same_type(actual, expected):
        raise CheckFailed(f"{name}: {_kind(expected)} expected, {_kind(actual)} found: {_show(actual)}")
    if actual == expected:
        return
    if isinstance(expected, (list, tuple)):
        _fail_sequence(actual, expected, name)
    if isinstance(expected, str):
        _fail_text(actual, expected, name)
    if isinstance(expected, dict):
        _fail_dictionary(actual, expected, name)
    raise CheckFailed(f"{name}: {_show(expected)} expected, {_show(actual)} found")


def check_raises(
    exceptions: type[BaseException] | tuple[type[BaseException], ...],
    call: Callable[[], Any],
    *,
    name: str = "this call",
    match: str | None = None,
) -> BaseException:
    """Call ``call`` and give the exception that it must raise.

    Args:
        exceptions: the type, or types, of which one must be raised.
        call: takes nothing: ``lambda: lab.sampler.SamplingParams(top_p=2.0)``.
        name: what is being tried, in the learner's words: "a top_p above 1".
        match: a regular expression to be found in the message, in any case.

    Raises:
        CheckFailed: nothing was raised, something else was, or the message lacks ``match``.
    """
    __tracebackhide__ = True
    types = exceptions if isinstance(exceptions, tuple) else (exceptions,)
    wanted = " or ".join(kind.__name__ for kind in types)
    try:
        value = call()
    except Exception as error:
        # A stub's NotImplementedError is a RuntimeError too; it never counts as the error that was asked for.
        if reached_stub(error) is not None:
            raise
        if not isinstance(error, types):
            raise CheckFailed(f"{name}: {wanted} expected, {type(error).__name__} raised: {error}") from error
        if match and not re.search(match, str(error), re.IGNORECASE):
            raise CheckFailed(
                f"{name}: the {type(error).__name__} should mention {match!r}; it says {str(error)!r}"
            ) from error
        return error
    raise CheckFailed(
        f"{name}: should be refused with {wanted}; nothing was raised and {_show(value)} came back"
    )


class _Comparison:
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
        running = lab.active_or_none()
        wanted = framework or (running.backend if running else None)
        found = arrays.framework(actual)
        if found is None or (wanted is not None and found != wanted):
            article = arrays.ARTICLES.get(wanted or "", "an array")
            raise CheckFailed(f"{self.name}: {article} expected, {_kind(actual)} found")

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
        relative = error[wrong] / np.maximum(np.abs(expected[wrong]), np.finfo(np.float64).tiny)
        lines = [
            f"{int(wrong.sum())} of {actual.size} values differ by more than rtol {self.rtol:g}, atol {self.atol:g}",
            f"the worst at {self._place(worst, expected)}: {_both(actual, expected, worst)}",
            f"largest error: {error.max():.3g} absolute, {relative.max():.3g} relative",
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


def _check_tuple(actual: Any, expected: tuple[Any, ...], name: str) -> None:
    __tracebackhide__ = True
    if not isinstance(actual, (tuple, list)):
        raise CheckFailed(f"{name}: a tuple of {len(expected)} expected, {_kind(actual)} found")
    if len(actual) != len(expected):
        raise CheckFailed(f"{name}: a tuple of {len(expected)} expected, one of {len(actual)} found")


def _check_plain(actual: Any, expected: Any, name: str, rtol: float | None, atol: float | None) -> None:
    __tracebackhide__ = True
    wanted = expected.item() if isinstance(expected, np.generic) else expected
    if not isinstance(wanted, float) or not isinstance(actual, (int, float)) or isinstance(actual, bool):
        check_equal(actual, wanted, name=name)
        return
    default = TOLERANCES["float32"]
    r, a = default[0] if rtol is None else rtol, default[1] if atol is None else atol
    if not np.isclose(actual, wanted, r, a, equal_nan=True):
        raise CheckFailed(f"{name}: {wanted:.7g} expected, {actual:.7g} found")


def _fail_sequence(actual: Any, expected: Any, name: str) -> None:
    __tracebackhide__ = True
    pairs = list(zip(actual, expected, strict=False))
    wrong = [i for i, (a, e) in enumerate(pairs) if a != e]
    lines = []
    if len(actual) != len(expected):
        lines.append(f"{len(expected)} items expected, {len(actual)} found")
    if wrong:
        first = wrong[0]
        count = f"{len(wrong)} of the {len(pairs)} items differ" if len(pairs) > 1 else "the item differs"
        where = f"the first at index {first}: " if len(pairs) > 1 else ""
        lines.append(f"{count}; {where}{_show(expected[first])} expected, {_show(actual[first])} found")
    lines += [f"expected {_show(expected)}", f"found    {_show(actual)}"]
    cause = find_plain_cause(list(actual), list(expected))
    if cause:
        lines.append(f"likely cause: {cause}")
    raise CheckFailed(f"{name}: " + "\n  ".join(lines))


def _fail_text(actual: str, expected: str, name: str) -> None:
    __tracebackhide__ = True
    common = next((i for i, (a, e) in enumerate(zip(actual, expected, strict=False)) if a != e), None)
    at = min(len(actual), len(expected)) if common is None else common
    start = max(0, at - 20)
    lines = [f"the texts part at character {at}"]
    lines += [f"expected {_piece(expected, start)}", f"found    {_piece(actual, start)}"]
    raise CheckFailed(f"{name}: " + "\n  ".join(lines))


def _fail_dictionary(actual: dict[Any, Any], expected: dict[Any, Any], name: str) -> None:
    __tracebackhide__ = True
    lines = [f"{key!r} is missing" for key in expected if key not in actual]
    lines += [f"{key!r} does not belong there" for key in actual if key not in expected]
    for key in expected:
        if key in actual and actual[key] != expected[key]:
            lines.append(f"at {key!r}: {_show(expected[key])} expected, {_show(actual[key])} found")
    raise CheckFailed(f"{name}: " + "\n  ".join(lines[:4]))


def _same_type(actual: Any, expected: Any) -> bool:
    if isinstance(expected, bool) or isinstance(actual, bool):
        return isinstance(expected, bool) and isinstance(actual, bool)
    if isinstance(expected, float) and isinstance(actual, int):
        return True
    return isinstance(actual, type(expected)) or isinstance(expected, type(actual))


def _kind(value: Any) -> str:
    """What a value is, with its article: "a torch tensor", "a list", "an int"."""
    found = arrays.framework(value)
    if found is not None:
        return arrays.ARTICLES[found]
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _show(value: Any, limit: int = 100) -> str:
    text = "<a value that can't be shown>"
    with contextlib.suppress(Exception):
        text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _piece(text: str, start: int, length: int = 60) -> str:
    return (
        ("…" if start else "")
        + repr(text[start : start + length])
        + ("…" if start + length < len(text) else "")
    )


def _shape(array: np.ndarray, axes: Axes) -> str:
    sizes = str(list(array.shape))
    return sizes if axes.names is None else f"{sizes} ({', '.join(axes.names)})"


def _both(actual: np.ndarray, expected: np.ndarray, index: tuple[int, ...]) -> str:
    return f"{_number(expected[index])} expected, {_number(actual[index])} found"


def _number(value: Any) -> str:
    return f"{value:.7g}" if np.asarray(value).dtype.kind == "f" else str(value)
