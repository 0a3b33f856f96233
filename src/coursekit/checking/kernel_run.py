"""A kernel run as plain Python: NumPy checks the bounds, and what the passes of its `prange` loop share is seen.

Compiled, neither shows: Numba reads behind the end of an array without a word, and two threads that write to one
array spoil it only now and then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

from coursekit.checking.comparison import CheckFailed

OUTSIDE = (
    "{name} reads or writes outside an array: {error}. Numba doesn't check this: the compiled kernel goes on with "
    "whatever lies there in memory"
)
NOT_SPREAD = "{name} has no `prange` loop: all its work is done by one core"
SHARED = (
    "{name}: several passes of the `prange` loop write to the same places of `{array}`, made before the loop. They "
    "run at the same time on several cores, and overwrite each other's numbers: make it inside the loop"
)
SAME_PLACES = (
    "{name}: several passes of the `prange` loop write to the same places of `{array}`. They run at the same time on "
    "several cores: each must write to places of its own"
)


def run_as_python(kernel: Any, *arguments: Any, spread: bool = True) -> Any:
    """Call a kernel without compiling it; functions of its own that it calls stay compiled.

    Args:
        kernel: a function compiled by Numba.
        arguments: its arguments. They should be small: loops in Python are slow.
        spread: whether it must have a `prange` loop, of which no two passes may write to the same place of an array.

    Returns:
        what the kernel returns.

    Raises:
        CheckFailed: it leaves the bounds of an array, lacks the loop, or shares an array between its passes.
    """
    __tracebackhide__ = True
    function = getattr(kernel, "py_func", kernel)
    loops = _Loops(function)
    try:
        with np.errstate(all="ignore"), loops.watched():
            result = function(*arguments)
    except IndexError as error:
        raise CheckFailed(OUTSIDE.format(name=function.__name__, error=error)) from error
    if spread and not loops.found:
        raise CheckFailed(NOT_SPREAD.format(name=function.__name__))
    return result


class _Loops:
    """Stands in for `prange` while a function runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.found = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Meanwhile the function's `prange`, by this name or as `numba.prange`, is this object."""
        names = self.function.__globals__
        with patch("numba.prange", self), patch.dict(names, {"prange": self} if "prange" in names else {}):
            yield

    def __call__(self, *bounds: int) -> Iterator[int]:
        self.found = True
        return self._passes(range(*bounds), sys._getframe(1))

    def _passes(self, passes: range, frame: FrameType) -> Iterator[int]:
        """The passes one after the other; after each, what it wrote is compared with what those before it wrote."""
        __tracebackhide__ = True
        arrays = {name: x for name, x in frame.f_locals.items() if isinstance(x, np.ndarray)}
        written = {name: np.zeros(x.shape, bool) for name, x in arrays.items()}
        for number in passes:
            before = {name: x.copy() for name, x in arrays.items()}
            yield number
            for name, x in arrays.items():
                now = _changed(before[name], x)
                if (now & written[name]).any():
                    raise CheckFailed(self._shared(name, frame))
                written[name] |= now

    def _shared(self, name: str, frame: FrameType) -> str:
        code = frame.f_code
        given = name in code.co_varnames[: code.co_argcount]
        return (SAME_PLACES if given else SHARED).format(name=self.function.__name__, array=name)


def _changed(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Where two arrays differ; NaN, which differs from itself, counts as equal."""
    different: np.ndarray = (before != after) & ~((before != before) & (after != after))
    return different
