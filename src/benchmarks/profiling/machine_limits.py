"""What this machine can do at most: how fast it reads memory, and how fast it multiplies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MEGABYTE = 1 << 20
TIMES = 5
DOTS = 1024
"""Operations of a tile of 8 rows: 16 lanes of 4 products, each multiplied and added."""


@dataclass(frozen=True)
class MachineLimits:
    """Bytes per second from memory; operations per second by number format, those that were measured."""

    bandwidth: float
    arithmetic: dict[str, float]

    def peak(self, name: str) -> float:
        """The arithmetic of a format; of float32 where it wasn't measured."""
        return self.arithmetic.get(name, self.arithmetic["float32"])


def measure_limits(quick: bool, dot_products: bool) -> MachineLimits:
    """Measure, each several times; the best counts.

    Args:
        quick: less memory, and smaller matrices.
        dot_products: whether Day 4.7's instruction for products of 8-bit numbers is measured, too.
    """
    arithmetic = dict(_matmuls(512 if quick else 1024))
    if dot_products:
        arithmetic["8 bits"] = _dot_products(200_000 if quick else 1_000_000)
    return MachineLimits(_read_memory((128 if quick else 512) * MEGABYTE), arithmetic)


def _best(function: Callable[[], object]) -> float:
    """Seconds of the fastest run; the first one, which compiles, doesn't count."""
    function()
    seconds = []
    for _ in range(TIMES):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _read_memory(nbytes: int) -> float:
    """Bytes per second of all threads that add up an array, which is larger than any cache."""
    import numba
    import numpy as np

    @numba.njit(parallel=True, fastmath=True)
    def total(array: Any, workers: int) -> float:
        found = 0.0
        for worker in numba.prange(workers):
            some: Any = np.float32(0)
            for i in range(worker * len(array) // workers, (worker + 1) * len(array) // workers):
                some += array[i]
            found += some
        return found

    array = np.ones(nbytes // 4, np.float32)
    return nbytes / _best(lambda: total(array, numba.get_num_threads()))


def _matmuls(size: int) -> Iterator[tuple[str, float]]:
    """Square matrices by torch: float32, which comes down to multiply-and-add, and bfloat16 by oneDNN."""
    import torch

    for dtype in (torch.float32, torch.bfloat16):
        one, other = (torch.randn(size, size).to(dtype) for _ in range(2))
        out = torch.empty_like(one)

        def multiply(one: Any = one, other: Any = other, out: Any = out) -> None:
            for _ in range(4):
                torch.mm(one, other, out=out)

        yield str(dtype).removeprefix("torch."), 4 * 2 * size**3 / _best(multiply)


def _dot_products(times: int) -> float:
    """Day 4.7's dot products of 8-bit numbers, on codes that lie in the nearest cache."""
    import numba
    import numpy as np

    import tiny_llm.fast.tiles as tiles
    from tiny_llm.fast.tiles import add_scaled_rows, dot4_rows, store_rows
    from tiny_llm.fast.vectors import load_floats, load_ints

    zero_ints: Any = tiles.zero_ints
    zero_floats: Any = tiles.zero_floats

    @numba.njit(parallel=True)
    def run(weights: Any, codes: Any, numbers: Any, times: int, workers: int, out: Any) -> None:
        for worker in numba.prange(workers):
            sums, more = zero_ints(8), zero_ints(8)
            for _ in range(times):
                sums = dot4_rows(sums, load_ints(weights, 0), codes, 0, 1)
                more = dot4_rows(more, load_ints(weights, 64), codes, 8, 1)
            for place, each in ((0, sums), (1, more)):
                scale = load_floats(numbers, 0)
                total = add_scaled_rows(zero_floats(8), each, scale, scale, numbers, numbers, 0, 1)
                store_rows(out, (2 * worker + place) * 128, 16, total)

    workers = numba.get_num_threads()
    weights, codes = np.ones(128, np.uint8), np.ones(16, np.int32)
    numbers, out = np.ones(16, np.float32), np.zeros(workers * 256, np.float32)
    return 2 * DOTS * times * workers / _best(lambda: run(weights, codes, numbers, times, workers, out))
