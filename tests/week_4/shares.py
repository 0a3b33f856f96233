"""For Day 4.7: which tiles each worker of a product takes, and in which order."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from coursekit.checking.comparison import plural
from coursekit.checking.kernel_run import run_as_python

from .eight_bits import require
from .records import GROUP, LANES, Coded

Tile = tuple[int, int]  # block, row


def tiles_of_workers(lab: Any, monkeypatch: Any, blocks: int, T: int, workers: int) -> list[list[Tile]]:
    """The tiles that each pass of multiply's loop takes, in its order; nothing is multiplied."""
    __tracebackhide__ = True
    matrix, multiply = Coded.random(blocks * LANES, GROUP, 4), lab.fast.multiply
    x = lab.fast.rows8.Rows8(np.zeros(T * GROUP, np.int8), *np.zeros((2, T), np.float32))
    passes: list[list[Tile]] = []

    def noting(weight: Any, block: Any, x: Any, row: Any, rows: Any, add: Any, out: Any) -> None:
        passes[-1].append((block, row))

    with monkeypatch.context() as patches:
        patches.setattr(multiply, "multiply_tile", noting)
        run_as_python(
            multiply.multiply,
            *(matrix.laid_out(lab), x, T, False, workers, np.zeros(T * blocks * LANES, np.float32)),
            deep=True,
            before_pass=lambda: passes.append([]),
        )
    return passes


def check_shares(passes: list[list[Tile]], blocks: int, T: int, workers: int) -> None:
    """Require that each worker takes neighboring blocks, and no worker more than it must."""
    __tracebackhide__ = True
    name = f"{plural(T, 'row')} times {plural(blocks, 'block')} by {plural(workers, 'worker')}"
    require(
        len(passes) == workers,
        f"{name}: passes of the `prange` loop: {len(passes)} found, one for each worker expected",
    )
    most = -(-blocks // workers)
    for worker, tiles in enumerate(passes):
        own = sorted({block for block, _ in tiles})
        taken = f"{name}: worker {worker} takes the blocks {', '.join(map(str, own))}"
        require(len(own) <= most, f"{taken}; shared evenly, it is {most} at most")
        together = all(after == before + 1 for before, after in pairwise(own))
        require(together, f"{taken}: neighboring ones expected")


def check_order(passes: list[list[Tile]], at_a_time: int) -> None:
    """Require that a worker takes some rows through all its blocks, one after the other, and then the next rows."""
    __tracebackhide__ = True
    for worker, tiles in enumerate(passes):
        rule = f"worker {worker}: {at_a_time} rows go through all its blocks before the next rows do"
        turns = [turn for turn, _ in groupby((row // at_a_time, block) for block, row in tiles)]
        for (before, _), (chunk, block) in pairwise(turns):
            require(
                before <= chunk,
                f"{rule}; block {block} meets row {chunk * at_a_time} after others met row {before * at_a_time}",
            )
        for (_, block), times in Counter(turns).items():
            require(times == 1, f"{rule}; it comes back to block {block} within {at_a_time} rows")
