"""A kernel run as plain Python: NumPy checks the bounds, and what the passes of its `prange` loop share is seen.

Compiled, neither shows: Numba reads behind the end of an array without a word, and two threads that write to one
array spoil it only now and then.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np

from coursekit.beside import beside
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


@beside
def run_as_python(
    kernel: Any,
    *arguments: Any,
    spread: bool = True,
    deep: bool = False,
    before_pass: Callable[[], object] | None = None,
) -> Any:
    """Call a kernel without compiling it.

    Args:
        kernel: a function compiled by Numba.
        arguments: its arguments. They should be small: loops in Python are slow.
        spread: whether it must have a `prange` loop, of which no two passes may write to the same place of an array.
        deep: whether compiled functions that it calls, and those that they call, run as Python, too. Functions of
            registers are given arrays here, with which they can't be compiled.
        before_pass: called before each pass of a `prange` loop.

    Returns:
        what the kernel returns.

    Raises:
        CheckFailed: it leaves the bounds of an array, lacks the loop, or shares an array between its passes.
    """
    __tracebackhide__ = True
    function = getattr(kernel, "py_func", kernel)
    loops = _Loops(function, before_pass)
    called = _called(function) if deep else [function]
    try:
        with np.errstate(all="ignore"), loops.watched(called), _uncompiled(called if deep else []):
            result = function(*arguments)
    except IndexError as error:
        raise CheckFailed(OUTSIDE.format(name=function.__name__, error=error)) from error
    if spread and not loops.found:
        raise CheckFailed(NOT_SPREAD.format(name=function.__name__))
    return result


@beside
def run_method_as_python(owner: Any, name: str, *arguments: Any, **options: Any) -> Any:
    """Call a method of an object, by the method's name, as :func:`run_as_python` calls a kernel."""
    __tracebackhide__ = True
    return run_as_python(getattr(type(owner), name), owner, *arguments, **options)


def _called(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """A function, and those of its package that it calls, compiled or not, and theirs; as Python."""
    found = [function]
    for each in found:  # it grows meanwhile
        used = inspect.getclosurevars(each)
        named = [*used.globals.values(), *used.nonlocals.values()]
        package = each.__module__.partition(".")[0]
        modules = [x for x in named if inspect.ismodule(x) and x.__name__.partition(".")[0] == package]
        named += [getattr(module, name, None) for module in modules for name in each.__code__.co_names]
        inner = [value.py_func for value in named if hasattr(value, "py_func")]
        # Plain functions, too: with a compiled form of another name, they may call compiled ones.
        inner += [value for value in named if inspect.isfunction(value) and _within(value, package)]
        found += [value for value in inner if value not in found]
    return found


def _within(function: Callable[..., Any], package: str) -> bool:
    return function.__module__.partition(".")[0] == package


@contextmanager
def _uncompiled(functions: list[Callable[..., Any]]) -> Iterator[None]:
    """Meanwhile these functions find the Python functions where they would find compiled ones."""
    with ExitStack() as stack:
        for function in functions:
            names = function.__globals__
            found = {name: value.py_func for name, value in names.items() if hasattr(value, "py_func")}
            stack.enter_context(patch.dict(names, found))
            for cell in function.__closure__ or ():
                if hasattr(cell.cell_contents, "py_func"):
                    stack.callback(setattr, cell, "cell_contents", cell.cell_contents)
                    cell.cell_contents = cell.cell_contents.py_func
        yield


class _Loops:
    """Stands in for `prange` while a function runs."""

    def __init__(self, function: Callable[..., Any], before_pass: Callable[[], object] | None = None) -> None:
        self.function = function
        self.before_pass = before_pass or (lambda: None)
        self.found = False

    @contextmanager
    def watched(self, functions: list[Callable[..., Any]]) -> Iterator[None]:
        """Meanwhile the functions' `prange`, by this name or as `numba.prange`, is this object."""
        with ExitStack() as stack:
            stack.enter_context(patch("numba.prange", self))
            for names in (function.__globals__ for function in functions):
                stack.enter_context(patch.dict(names, {"prange": self} if "prange" in names else {}))
            yield

    def __call__(self, *bounds: int) -> Iterator[int]:
        self.found = True
        return self._passes(range(*bounds), sys._getframe(1))

    def _passes(self, passes: range, frame: FrameType) -> Iterator[int]:
        """The passes one after the other; after each, what it wrote is compared with what those before it wrote."""
        __tracebackhide__ = True
        arrays = dict(_arrays(frame.f_locals))
        written = {name: np.zeros(x.shape, bool) for name, x in arrays.items()}
        for number in passes:
            before = {name: x.copy() for name, x in arrays.items()}
            self.before_pass()
            yield number
            for name, x in arrays.items():
                now = _changed(before[name], x)
                if (now & written[name]).any():
                    raise CheckFailed(self._shared(name, frame))
                written[name] |= now

    def _shared(self, name: str, frame: FrameType) -> str:
        code = frame.f_code
        given = name.partition(".")[0] in code.co_varnames[: code.co_argcount]
        return (SAME_PLACES if given else SHARED).format(name=code.co_name, array=name)


def _arrays(values: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays among some values, by name, and those in their named tuples."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            yield name, value
        elif isinstance(value, tuple) and hasattr(value, "_asdict"):
            yield from _arrays({f"{name}.{field}": inner for field, inner in value._asdict().items()})


def _changed(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Where two arrays differ; NaN, which differs from itself, counts as equal."""
    different: np.ndarray = (before != after) & ~((before != before) & (after != after))
    return different
