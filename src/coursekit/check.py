"""Comparing what the learner's code gives with what it should give, and saying in plain words where they part."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coursekit.checking.causes import find_plain_cause
from coursekit.checking.comparison import CheckFailed, Comparison, Suspects, kind_of, wanted_array
from coursekit.running.stubs import reached_stub

# What float arithmetic in another order may change. bfloat16 keeps 8 bits of a number, float16 keeps 11.
TOLERANCES = {"float32": (1e-5, 1e-6), "bfloat16": (1.6e-2, 1e-2), "float16": (2e-3, 1e-3)}


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
        wanted = kind_of(expected) if isinstance(expected, tuple) else wanted_array(framework)
        raise CheckFailed(f"{name}: None found, {wanted} expected; is a `return` missing?")
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
    comparison = Comparison(
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
        raise CheckFailed(f"{name}: {kind_of(expected)} expected, {kind_of(actual)} found: {_show(actual)}")
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


def _check_tuple(actual: Any, expected: tuple[Any, ...], name: str) -> None:
    __tracebackhide__ = True
    if not isinstance(actual, (tuple, list)):
        raise CheckFailed(f"{name}: a tuple of {len(expected)} expected, {kind_of(actual)} found")
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
