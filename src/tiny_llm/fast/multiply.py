"""Rows in 8 bits times weights in 4 or 8 bits (Day 4.7)."""

from __future__ import annotations

import numpy as np
from numba import prange

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.rows8 import GROUP
from tiny_llm.fast.tiles import add_scaled_rows, dot4_rows, load_rows, store_rows, zero_floats, zero_ints
from tiny_llm.fast.vectors import fetch, high_nibbles, load_halves, load_ints, low_nibbles

AT_A_TIME = 256
"""Rows that a thread goes through before it takes the next rows: their codes stay in its cache."""
AHEAD = 5120
"""Bytes: how long before their use weights are fetched from memory."""


@exact_inlined
def multiply_tile(weight, block, x, row, rows, add, out):
    """Some rows times 16 outputs, written to ``out`` or added to it.

    Args:
        weight: :class:`LaidOut`, of 4 or 8 bits.
        block: which 16 outputs.
        x: :class:`Rows8` of ``weight.width`` numbers a row.
        row: the first of the rows. rows: how many, a constant: 1, 2, 4 or 8.
        add: whether ``out`` is added to.
        out: float32 [T·N].
    """
    raise NotImplementedError("Week 4 Day 7 Task 3: The multiplication")


@exact_kernel
def multiply_block(weight, block, x, first, last, add, out):
    """Rows ``first`` … ``last`` − 1 times 16 outputs."""
    raise NotImplementedError("Week 4 Day 7 Task 3: The multiplication")


@exact_kernel
def multiply(weight, x, count, add, workers, out):
    """The first ``count`` rows of x times the matrix, written to ``out`` or added to it."""
    raise NotImplementedError("Week 4 Day 7 Task 3: The multiplication")
