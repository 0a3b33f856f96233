"""Looking at an engine from outside: functions that are wrapped for a while, and are as they were afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

OPENED = tuple(
    f"tiny_llm.fast.block8.{name}"
    for name in ("block_on_pages", "before_attention", "attend_pages", "after_attention")
)
"""Kernels of Day 4.7 that only call other kernels: their parts are seen when Python runs their bodies."""

_MISSING = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of an object or class is another one for a while, whatever happens."""
    before = vars(owner).get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@dataclass(frozen=True)
class KernelCall:
    """A call of a Numba kernel; times in nanoseconds of the clock that does not jump."""

    kernel: Any
    module: str
    name: str
    detail: str
    start: int
    end: int


class KernelWatch:
    """Notes the calls of Numba's kernels that come from Python on this thread."""

    def __init__(self, package: str = "tiny_llm", opened: tuple[str, ...] = OPENED) -> None:
        """Nothing is watched yet.

        Args:
            package: where the kernels are that are noted.
            opened: the names of those that are replaced by their parts, while :attr:`opening` is set.
        """
        from numba import njit

        self.calls: list[KernelCall] = []
        self.opened: list[tuple[int, int]] = []  # when a kernel was run part by part
        self.names: set[str] = set()  # of those kernels
        self.opening = True
        self._package = package
        self._names = opened
        self._inside = False  # whether a kernel is run part by part now
        self._thread = threading.get_ident()
        self._samples: dict[Any, tuple[Any, ...]] = {}
        self._empty = njit(_nothing)

    def reset(self) -> None:
        """Forget all calls so far."""
        self.calls, self.opened = [], []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the block runs. Kernels that call one another do so in compiled code: only the outermost is seen."""
        from numba.core.dispatcher import Dispatcher

        call = Dispatcher.__call__

        def watched(kernel: Any, *arguments: Any, **named: Any) -> Any:
            module = str(kernel.py_func.__module__)
            if threading.get_ident() != self._thread or module.split(".")[0] != self._package:
                return call(kernel, *arguments, **named)
            if self.opening and f"{module}.{kernel.py_func.__name__}" in self._names and not named:
                return self._run_parts(kernel, arguments)
            start = time.perf_counter_ns()
            try:
                return call(kernel, *arguments, **named)
            finally:
                end = time.perf_counter_ns()
                name = str(kernel.py_func.__name__)
                self.calls.append(KernelCall(kernel, module, name, _shapes(arguments), start, end))
                self._samples.setdefault(kernel, arguments)

        with replaced(Dispatcher, "__call__", watched):
            yield

    def _run_parts(self, kernel: Any, arguments: tuple[Any, ...]) -> Any:
        self.names.add(kernel.py_func.__name__)
        if self._inside:
            return kernel.py_func(*arguments)
        self._empty(*arguments)  # to hand the arguments over takes its time, which belongs to the step
        self._inside, start = True, time.perf_counter_ns()
        try:
            return kernel.py_func(*arguments)
        finally:
            self.opened.append((start, time.perf_counter_ns()))
            self._inside = False

    def calling_seconds(self, times: int = 200) -> dict[Any, float]:
        """For each kernel that was called, what a kernel takes that gets the same arguments and does nothing."""
        return {kernel: self._median(arguments, times) for kernel, arguments in self._samples.items()}

    def _median(self, arguments: tuple[Any, ...], times: int) -> float:
        self._empty(*arguments)  # it is compiled for each kind of arguments
        spent = []
        for _ in range(times):
            start = time.perf_counter_ns()
            self._empty(*arguments)
            spent.append(time.perf_counter_ns() - start)
        return sorted(spent)[times // 2] * 1e-9


def _nothing(*arguments: Any) -> None:
    return None


def _shapes(arguments: tuple[Any, ...]) -> str:
    """The sizes of a matrix among the arguments; without one nothing."""
    for each in arguments:
        if hasattr(each, "outputs") and hasattr(each, "width"):
            return f"{each.width}→{each.outputs}"
    return ""


class Regions:
    """Notes when some Python functions run."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, int, int]] = []

    def around(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function; its calls are noted as a region of this kind."""

        def call(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter_ns()
            try:
                return function(*arguments, **named)
            finally:
                self.noted.append((kind, start, time.perf_counter_ns()))

        return call
