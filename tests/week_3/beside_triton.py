"""Launches of Day 3.4's kernels beside the learner's code, watched where Triton's interpreter runs them."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coursekit.beside import beside
from coursekit.check import CheckFailed

from .beside_triton_memory import Program, watched

Results = tuple[tuple[str, tuple[int, ...], str], ...]
"""Of each result of a function its name, its shape and its dtype in Triton's words."""


@beside
def interpreted() -> bool:
    """Whether kernels run in the interpreter, and not on a GPU."""
    import triton

    return bool(triton.knobs.runtime.interpret)


@beside
def launch_one(
    kernel: str, function: Any, results: Results, arguments: tuple[Any, ...], far: bool = False
) -> tuple[list[int], list[int] | None]:
    """One program of a kernel that calls one of the learner's functions and stores what it gives.

    Args:
        kernel: its name in `beside_triton_kernels`.
        function: the learner's.
        results: what is stored of it.
        arguments: of the kernel, behind the function.
        far: addresses outside of all arrays are no mistake.

    Returns:
        the addresses outside of all arrays that were to be read, in bytes from the start of the first argument; which
        elements of the second argument were read, None where no interpreter watches.
    """
    from . import beside_triton_kernels as kernels

    with watched(interpreted(), check=not far) as memory:
        getattr(kernels, kernel)[(1,)](_looked_at(function, results), *arguments)
    astray = memory.astray.get("reads", (np.zeros(0, np.int64), []))[0] - arguments[0].data_ptr()
    return astray.tolist(), sorted(memory.of(arguments[1]).read) if memory.regions else None


def _looked_at(function: Any, results: Results) -> Any:
    """The learner's function as a kernel's argument; its results are looked at. Only the interpreter can: it runs
    Python."""
    if not interpreted():
        return function
    called = function.__name__

    def looked_at(*arguments: Any) -> Any:
        found = function(*arguments)
        many = list(found) if isinstance(found, tuple) else [found]
        words = ", ".join(what for what, _, _ in results)
        right = len(many) == len(results) and all(hasattr(x, "dtype") for x in many)
        if not right:
            raise CheckFailed(f"{called} should return {words}; not {found}")
        for x, (what, shape, dtype) in zip(many, results, strict=True):
            sizes = [int(getattr(size, "value", size)) for size in x.shape]
            if sizes != list(shape):
                raise CheckFailed(f"{what}, of {called}: the shape should be {list(shape)}, not {sizes}")
            kind = str(x.dtype.scalar)
            if kind != dtype:
                raise CheckFailed(f"{what}, of {called}, should be {dtype}, not {kind}")
        return found

    return looked_at


@beside
def launch_grid(
    kernel: Any,
    grid: tuple[int, int, int],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    pages: tuple[Any, ...],
    results: tuple[Any, ...],
) -> dict[Program, list[int]]:
    """All programs of the learner's kernel, which have to fill the results.

    Returns:
        the rows of the pages that each program has read; nothing where no interpreter watches.
    """
    with watched(interpreted()) as memory:
        memory.results += results
        kernel[grid](*arguments, **options)
    read: dict[Program, set[int]] = {}
    for array in pages if memory.regions else ():
        for program, rows in memory.of(array).rows.items():
            read.setdefault(program, set()).update(rows)
    return {program: sorted(rows) for program, rows in read.items()}


@beside
def called_watched(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function gives whose kernels are watched."""
    with watched(interpreted()):
        return function(*arguments)


class Counting:
    """A kernel that notes each launch: its grid, and its arguments by name; of arrays only the dtype."""

    def __init__(self, kernel: Any) -> None:
        self._kernel, self._names = kernel, list(inspect.signature(kernel.fn).parameters)
        self.launches: list[tuple[tuple[int, ...], dict[str, Any]]] = []

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **options: Any) -> Any:
            named = dict(zip(self._names, arguments, strict=False)) | options
            told = {name: str(x.dtype) if hasattr(x, "dtype") else x for name, x in named.items()}
            self.launches.append((tuple(grid), told))
            return self._kernel[grid](*arguments, **options)

        return launch


@beside
def counting(kernel: Any) -> Counting:
    """The kernel, whose launches are noted."""
    return Counting(kernel)


@beside
def compiled() -> dict[str, Any]:
    """What became of the learner's functions in Triton's compiler, in a process of its own; no GPU is needed.

    Raises:
        RuntimeError: the process has failed.
    """
    command = [sys.executable, str(Path(__file__).with_name("beside_gpu_compiler.py"))]
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        own = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": folder, "PYTHONPATH": path}
        ran = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=100)
    if ran.returncode != 0:
        raise RuntimeError(ran.stderr[-2000:])
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found
