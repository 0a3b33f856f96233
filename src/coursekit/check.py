"""Comparing what the learner's code gives with what it should give, and saying in plain words where they part."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from coursekit import arrays
from coursekit.checking.causes import EITHER, find_plain_suspect
from coursekit.checking.comparison import (
    TOLERANCES,
    CheckFailed,
    Comparison,
    Suspects,
    kind_of,
    part_of_each,
    wanted_array,
)
from coursekit.checking.plain import fail_plain, outline, same_type, show
from coursekit.checking.wording import apart
from coursekit.running.stubs import reached_stub

WROTE_IN_PLACE = (
    "your function wrote into the array that it was given (`+=`, `x[i] = …`, a method ending in `_`): "
    "make a new one"
)


def check(
    actual: Any,
    expected: Any,
    *,
    name: str | tuple[str, ...] = "the result",
    axes: str | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    dtype: str | None = "float32",
    framework: str | None = None,
    suspects: Suspects | None = None,
    inputs: Mapping[str, Any] | None = None,
    nan: str | None = None,
) -> None:
    """Compare in this order: ``None``, type, shape, dtype, NaN and infinity, values.

    Args:
        actual: what the learner's code gave.
        expected: a NumPy array (float64 is best), or nested lists of numbers, for an array; a tuple of those for a
            tuple; an int, float, bool or str for a plain value.
        name: what it is, in the learner's words: "the attention output"; for a tuple, a tuple of such names if its
            parts have names of their own: ("cos", "sin").
        axes: a name for each axis, "B H L D"; failures speak of them.
        rtol, atol: tolerances; left out, 1e-5 and 1e-6, or what the given half-precision ``dtype`` can hold.
        dtype: what a float array must be; ``None`` accepts any. Integer and bool arrays must be of their kind,
            and of this very dtype when it names an integer one.
        framework: "numpy" where a NumPy array is promised rather than one of the backend.
        suspects: mistake -> the array that it would give (or a function that computes it); named as the likely
            cause when it is what the learner got. For a tuple, each gives a tuple.
        inputs: name -> array that went in; named when it came back unchanged.
        nan: the likely cause of a NaN, where the test has put NaN into what must not be read.

    Raises:
        CheckFailed: they differ.
    """
    __tracebackhide__ = True
    whole = name if isinstance(name, str) else f"({', '.join(name)})"
    if isinstance(expected, (bool, int, float, str, np.generic)):
        _check_plain(actual, expected, whole, rtol, atol, suspects)
        return
    if actual is None:
        wanted = kind_of(expected) if isinstance(expected, tuple) else wanted_array(framework)
        raise CheckFailed(f"{whole}: None found, {wanted} expected; is a `return` missing?")
    if isinstance(expected, tuple):
        _check_tuple(actual, expected, whole)
        names = [f"{name}[{i}]" for i in range(len(expected))] if isinstance(name, str) else name
        for position, (part, wanted) in enumerate(zip(actual, expected, strict=True)):
            check(
                part,
                wanted,
                name=names[position],
                axes=axes,
                rtol=rtol,
                atol=atol,
                dtype=dtype,
                framework=framework,
                suspects=part_of_each(suspects or {}, position, expected),
                inputs=inputs,
                nan=nan,
            )
        return
    default = TOLERANCES.get(dtype or "float32", TOLERANCES["float32"])
    comparison = Comparison(
        name=whole,
        axes=axes,
        rtol=default[0] if rtol is None else rtol,
        atol=default[1] if atol is None else atol,
        suspects=suspects,
        inputs=inputs,
        nan=nan,
    )
    comparison.run(actual, np.asarray(expected), dtype, framework)


def check_shape(
    actual: Any,
    shape: tuple[int, ...],
    *,
    name: str = "the result",
    axes: str | None = None,
    framework: str | None = None,
) -> np.ndarray:
    """A NumPy copy of an array, once it is known to be one and of this shape: for a test that computes with it.

    Arguments are those of :func:`check`.

    Raises:
        CheckFailed: it is None, no array of the backend (or of ``framework``), or of another shape.
    """
    __tracebackhide__ = True
    if actual is None:
        raise CheckFailed(f"{name}: None found, {wanted_array(framework)} expected; is a `return` missing?")
    return Comparison(name, axes).check_shape(actual, shape, framework)


def check_equal(
    actual: Any, expected: Any, *, name: str = "the result", suspects: Suspects | None = None
) -> None:
    """Compare plain values (ids, strings, lists, dictionaries) for equality.

    Args:
        actual: what the learner's code gave.
        expected: what it should give.
        name: what it is, in the learner's words.
        suspects: mistake -> the value that it would give; named as the likely cause when it is what the learner got.

    Raises:
        CheckFailed: they differ; the message says at which item.
    """
    __tracebackhide__ = True
    if actual is None and expected is not None:
        raise CheckFailed(f"{name}: None found, {show(expected)} expected; is a `return` missing?")
    if not same_type(actual, expected):
        raise CheckFailed(f"{name}: {kind_of(expected)} expected, {kind_of(actual)} found: {show(actual)}")
    if actual == expected:
        return
    fail_plain(actual, expected, name, find_plain_suspect(actual, expected, suspects or {}))


def check_untouched(
    argument: Any, before: np.ndarray, *, name: str, axes: str | None = None, dtype: str | None = "float32"
) -> None:
    """Require that an array that was passed to the learner's function is what it was before the call.

    Raises:
        CheckFailed: it was written to.
    """
    __tracebackhide__ = True
    written = {WROTE_IN_PLACE: lambda: arrays.to_numpy(argument)}
    check(
        argument, before, name=f"{name}, afterwards", axes=axes, dtype=dtype, suspects=written, rtol=0, atol=0
    )


def check_raises(
    exceptions: type[BaseException] | tuple[type[BaseException], ...],
    call: Callable[[], Any],
    *,
    name: str = "this call",
    match: str | tuple[str, ...] = (),
) -> BaseException:
    """Call ``call`` and give the exception that it must raise.

    Args:
        exceptions: the type, or types, of which one must be raised.
        call: takes nothing: ``lambda: lab.sampler.SamplingParams(top_p=2.0)``.
        name: what is being tried, in the learner's words: "a top_p above 1".
        match: a regular expression to be found in the message, in any case; or several.

    Raises:
        CheckFailed: nothing was raised, something else was, or the message lacks ``match``.
    """
    __tracebackhide__ = True
    types = exceptions if isinstance(exceptions, tuple) else (exceptions,)
    wanted = " or ".join(kind.__name__ for kind in types)
    caught: tuple[type[BaseException], ...] = (Exception, *types)  # KeyboardInterrupt is no Exception
    try:
        value = call()
    except caught as error:
        # A stub's NotImplementedError is a RuntimeError too; it never counts as the error that was asked for.
        if reached_stub(error) is not None:
            raise
        if not isinstance(error, types):
            raise CheckFailed(f"{name}: {wanted} expected, {type(error).__name__} raised: {error}") from error
        for pattern in (match,) if isinstance(match, str) else match:
            if not re.search(pattern, str(error), re.IGNORECASE):
                raise CheckFailed(
                    f"{name}: the {type(error).__name__} should mention {pattern!r}; it says {str(error)!r}"
                ) from error
        return error
    raise CheckFailed(
        f"{name}: should be refused with {wanted}; nothing was raised; {outline(value)} came back"
    )


def check_allowed(call: Callable[[], Any], *, name: str, why: str) -> Any:
    """Call ``call``, which must not be refused, and give what it returns.

    Args:
        call: takes nothing: ``lambda: rope.angles(slice(5, 5))``.
        name: what is being tried, in the learner's words: "an empty slice".
        why: what the rule is: "the stop may be equal to the start".

    Raises:
        CheckFailed: it ended in a ValueError, by which the course's functions refuse what they are given.
    """
    __tracebackhide__ = True
    try:
        return call()
    except ValueError as error:
        raise CheckFailed(f"{name}: is valid, but was refused: {error}\n  {why}") from error


def _check_tuple(actual: Any, expected: tuple[Any, ...], name: str) -> None:
    __tracebackhide__ = True
    if not isinstance(actual, (tuple, list)):
        raise CheckFailed(f"{name}: a tuple of {len(expected)} expected, {kind_of(actual)} found")
    if len(actual) != len(expected):
        raise CheckFailed(f"{name}: a tuple of {len(expected)} expected, one of {len(actual)} found")


def _check_plain(
    actual: Any, expected: Any, name: str, rtol: float | None, atol: float | None, suspects: Suspects | None
) -> None:
    __tracebackhide__ = True
    wanted = expected.item() if isinstance(expected, np.generic) else expected
    if not isinstance(wanted, float) or not isinstance(actual, (int, float)) or isinstance(actual, bool):
        check_equal(actual, wanted, name=name, suspects=suspects)
        return
    default = TOLERANCES["float32"]
    r, a = default[0] if rtol is None else rtol, default[1] if atol is None else atol
    if not np.isclose(actual, wanted, r, a, equal_nan=True):
        known = [mistake for mistake, given in (suspects or {}).items() if np.isclose(actual, given, r, a)]
        cause = f"\n  likely cause: {EITHER.join(known)}" if known else ""
        raise CheckFailed("{}: {} expected, {} found{}".format(name, *apart(wanted, actual), cause))
