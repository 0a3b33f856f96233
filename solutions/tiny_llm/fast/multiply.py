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
    groups, quads = weight.width // GROUP, weight.width // 4
    codes, records = x.codes.view(np.int32), weight.records
    start = row * weight.outputs + block * 16
    totals = load_rows(out, start, weight.outputs, rows) if add else zero_floats(rows)
    size = 64 * weight.bits + 64
    for group in range(groups):
        record, at = (block * groups + group) * size, row * quads + group * 8
        sums = zero_ints(rows)
        if weight.bits == 4:
            for pair in range(4):
                both = load_ints(records, record + pair * 64)
                fetch(records, record + pair * 64 + AHEAD)
                sums = dot4_rows(sums, low_nibbles(both), codes, at + 2 * pair, quads)
                sums = dot4_rows(sums, high_nibbles(both), codes, at + 2 * pair + 1, quads)
        else:
            for each in range(8):
                four = load_ints(records, record + each * 64)
                fetch(records, record + each * 64 + AHEAD)
                sums = dot4_rows(sums, four, codes, at + each, quads)
        numbers = record + 64 * weight.bits
        fetch(records, numbers + AHEAD)
        scales, minima = load_halves(records, numbers), load_halves(records, numbers + 32)
        totals = add_scaled_rows(
            totals, sums, scales, minima, x.steps, x.offsets, row * groups + group, groups
        )
    store_rows(out, start, weight.outputs, totals)


@exact_kernel
def multiply_block(weight, block, x, first, last, add, out):
    """Rows ``first`` … ``last`` − 1 times 16 outputs."""
    row = first
    while last - row >= 8:
        multiply_tile(weight, block, x, row, 8, add, out)
        row += 8
    if last - row >= 4:
        multiply_tile(weight, block, x, row, 4, add, out)
        row += 4
    if last - row >= 2:
        multiply_tile(weight, block, x, row, 2, add, out)
        row += 2
    if last - row >= 1:
        multiply_tile(weight, block, x, row, 1, add, out)


@exact_kernel
def multiply(weight, x, count, add, workers, out):
    """The first ``count`` rows of x times the matrix, written to ``out`` or added to it."""
    blocks = weight.outputs // 16
    for worker in prange(workers):
        for first in range(0, count, AT_A_TIME):
            last = min(first + AT_A_TIME, count)
            for block in range(worker * blocks // workers, (worker + 1) * blocks // workers):
                multiply_block(weight, block, x, first, last, add, out)
