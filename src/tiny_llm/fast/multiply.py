"""Rows in 8 bits times weights in 4 or 8 bits (Day 4.7)."""

from __future__ import annotations

import numpy as np
from numba import get_num_threads, prange

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.rows8 import GROUP
from tiny_llm.fast.tiles import add_scaled_rows, dot4_rows, load_rows, store_rows, zero_floats, zero_ints
from tiny_llm.fast.vectors import high_nibbles, load_floats, load_ints, low_nibbles

AT_A_TIME = 256
"""Rows that a thread goes through before it takes the next rows: their codes stay in its cache."""


def _make_tile(rows: int):  # type: ignore[no-untyped-def]
    """A function for tiles of so many rows: the compiler must know the number."""

    @exact_inlined
    def multiply_tile(weight, block, x, row, add, out):
        groups = weight.width // GROUP
        codes = x.codes.view(np.int32)
        totals = load_rows(out, row * weight.outputs + block * 16, weight.outputs, rows) if add else zero_floats(rows)
        for group in range(groups):
            sums = zero_ints(rows)
            at = row * (weight.width // 4) + group * 8
            if weight.bits == 4:
                for pair in range(4):
                    both = load_ints(weight.codes, ((block * groups + group) * 4 + pair) * 64)
                    sums = dot4_rows(sums, low_nibbles(both), codes, at + 2 * pair, weight.width // 4)
                    sums = dot4_rows(sums, high_nibbles(both), codes, at + 2 * pair + 1, weight.width // 4)
            else:
                for each in range(8):
                    four = load_ints(weight.codes, ((block * groups + group) * 8 + each) * 64)
                    sums = dot4_rows(sums, four, codes, at + each, weight.width // 4)
            numbers = (block * groups + group) * 16
            scales, minima = load_floats(weight.scales, numbers), load_floats(weight.minima, numbers)
            totals = add_scaled_rows(
                totals, sums, scales, minima, x.steps, x.offsets, row * groups + group, groups
            )
        store_rows(out, row * weight.outputs + block * 16, weight.outputs, totals)

    return multiply_tile


multiply_1, multiply_2, multiply_4, multiply_8 = (_make_tile(rows) for rows in (1, 2, 4, 8))


@exact_kernel
def multiply_block(weight, block, x, first, last, add, out):
    """Rows ``first`` … ``last`` − 1 times 16 outputs."""
    row = first
    while last - row >= 8:
        multiply_8(weight, block, x, row, add, out)
        row += 8
    if last - row >= 4:
        multiply_4(weight, block, x, row, add, out)
        row += 4
    if last - row >= 2:
        multiply_2(weight, block, x, row, add, out)
        row += 2
    if last - row >= 1:
        multiply_1(weight, block, x, row, add, out)


@exact_kernel
def multiply(weight, x, count, add, workers, out):
    """The first ``count`` rows of x times the matrix, written to ``out`` or added to it."""
    blocks = weight.outputs // 16
    for worker in prange(workers):
        for first in range(0, count, AT_A_TIME):
            last = min(first + AT_A_TIME, count)
            for block in range(worker * blocks // workers, (worker + 1) * blocks // workers):
                multiply_block(weight, block, x, first, last, add, out)
