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
    """Some rows times 16 outputs, written to ``out`` or added to it: one tile.

    Row t's number for output n of N becomes out[t · N + n]. It is a sum over the groups of 32 inputs, in their order,
    on top of what ``out`` held if ``add``, otherwise of 0: each group adds Σ codes of x · codes of the weight, exact
    as a whole number, times step · scale, and then offset · minimum, as :func:`add_scaled_rows` does. Whichever rows
    are in the tile, and however many, a row goes through the same operations in the same order: so it comes out the
    same to the last bit.

    Row t's codes begin at element t · K of ``x.codes``, its steps and offsets at element t · K/32. Where four
    codes are taken as one int32, a row has K/4 of those.

    Nothing of other rows or other blocks is read or written; of ``out`` nothing is read unless ``add``. Weights may
    be announced to the processor by :func:`fetch`, AHEAD bytes before they are used: that is faster, but changes no
    number, and no test asks for it.

    Args:
        weight: :class:`LaidOut`, of 4 or 8 bits; its bias is not used here.
        block: which 16 outputs: 16 · block … 16 · block + 15.
        x: :class:`Rows8` of ``weight.width`` numbers per row, K; there may be room for more rows.
        row: the first of the rows. rows: how many, a constant: 1, 2, 4 or 8.
        add: whether ``out`` is added to.
        out: float32 [T·N or more]; changed.
    """
    raise NotImplementedError("Week 4 Day 7 Task 3: The multiplication")


@exact_kernel
def multiply_block(weight, block, x, first, last, add, out):
    """Rows ``first`` … ``last`` − 1 times 16 outputs, in tiles; a row comes out the same in each, to the last bit.

    As long as 8 rows are left, they are a tile; the rest is at most one tile each of 4, 2 and 1 rows. The compiler
    must know how many: the number stands in the call as a constant. No other row is read or written, and where
    ``first`` is ``last``, none is.

    Other arguments are those of :func:`multiply_tile`.
    """
    raise NotImplementedError("Week 4 Day 7 Task 3: The multiplication")


@exact_kernel
def multiply(weight, x, count, add, workers, out):
    """The first ``count`` rows of x times the matrix, written to ``out`` or added to it.

    The blocks are shared among ``workers`` passes of a `prange` loop, each of which takes neighboring blocks, about
    as many as the others do. A pass takes AT_A_TIME rows through all its blocks before it takes the next rows.
    Neither ``workers`` nor ``count`` changes a row's numbers by a bit.

    Args:
        weight: :class:`LaidOut` [N, K], of 4 or 8 bits; its bias is not used here.
        x: :class:`Rows8` of K numbers per row, with room for ``count`` rows or more.
        count: T, also 0.
        add: whether ``out`` is added to.
        workers: a positive number, which may be larger than that of the blocks.
        out: float32 [T·N or more]; what lies behind T·N is left alone.
    """
    raise NotImplementedError("Week 4 Day 7 Task 3: The multiplication")
