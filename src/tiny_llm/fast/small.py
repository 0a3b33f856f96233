"""A block's small operations, each in one pass over memory (Day 4.7)."""

from __future__ import annotations

import numpy as np
from numba import prange

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.rows8 import GROUP, put_group, quantize_row, quantize_row_twice
from tiny_llm.fast.vectors import (
    floats,
    fma,
    largest,
    load_floats,
    nearest,
    power_of_2,
    store_floats,
    sum_of_lanes,
)

FEW = 16
"""Up to so many rows one thread does small operations faster than several, which have to be woken."""


@exact_inlined
def root_mean_square(x, start, width, eps):
    """1 / √(mean(x²) + eps) of ``width`` numbers from ``x[start]`` on."""
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_inlined
def normalize_row(x, row, width, weight, eps, rows):
    """RMSNorm of a row, in 8 bits."""
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_kernel
def normalize_rows(first, last, x, width, weight, eps, rows):
    for row in range(first, last):
        normalize_row(x, row, width, weight, eps, rows)


@exact_kernel
def normalize(count, workers, x, width, weight, eps, rows):
    """RMSNorm of the first rows of x, in 8 bits."""
    if count <= FEW:
        normalize_rows(0, count, x, width, weight, eps, rows)
    else:
        for worker in prange(workers):
            normalize_rows(
                worker * count // workers, (worker + 1) * count // workers, x, width, weight, eps, rows
            )


@exact_kernel
def quantize_twice(first, last, x, width, rows):
    """Rows ``first`` … ``last`` − 1 of x, each as two rows in 8 bits."""
    for row in range(first, last):
        quantize_row_twice(x, row * width, width, 2 * row * (width // GROUP), rows)


@exact_kernel
def quantize_rows(first, last, x, width, rows):
    for row in range(first, last):
        quantize_row(x, row * width, width, row * (width // GROUP), rows)


@exact_kernel
def quantize(count, workers, x, width, rows):
    """The first rows of x in 8 bits."""
    if count <= FEW:
        quantize_rows(0, count, x, width, rows)
    else:
        for worker in prange(workers):
            quantize_rows(worker * count // workers, (worker + 1) * count // workers, x, width, rows)


@exact_inlined
def exponential(x):
    """e to the power of each lane, at most 1e-7 off relative to it: 2 to a whole number, times a polynomial.

    Below −87 it is as at −87, which is nearly 0; above 88 as at 88.
    """
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_inlined
def gate_16(gate_up, at, width):
    """silu(gate) · up of 16 numbers; up's lie ``width`` behind the gate's."""
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_inlined
def gate_row(gate_up, row, width, rows):
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_kernel
def gate_rows(first, last, gate_up, width, rows):
    for row in range(first, last):
        gate_row(gate_up, row, width, rows)


@exact_kernel
def gate(count, workers, gate_up, width, rows):
    """silu(gate) · up of the first rows, in 8 bits."""
    if count <= FEW:
        gate_rows(0, count, gate_up, width, rows)
    else:
        for worker in prange(workers):
            gate_rows(worker * count // workers, (worker + 1) * count // workers, gate_up, width, rows)


@exact_inlined
def rotate_head(qkv, start, cos, sin, row, size, out, at):
    """A head turned by the angles of its token: Day 1.2's pairs of the two halves."""
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_inlined
def normalize_head(qkv, start, size, weight, eps):
    factor = floats(root_mean_square(qkv, start, size, eps))
    for i in range(0, size, 16):
        store_floats(qkv, start + i, load_floats(qkv, start + i) * factor * load_floats(weight, i))


@exact_inlined
def split_row(qkv, row, shape, norms, cos, sin, query, key, value):
    """Queries and keys of a token, normalized where the model does so, and rotated; its values."""
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_kernel
def split_rows(first, last, qkv, shape, norms, cos, sin, query, key, value):
    for row in range(first, last):
        split_row(qkv, row, shape, norms, cos, sin, query, key, value)


@exact_kernel
def split(count, workers, qkv, shape, norms, cos, sin, query, key, value):
    """Rotated queries and keys, and values, of the first rows."""
    if count <= FEW:
        split_rows(0, count, qkv, shape, norms, cos, sin, query, key, value)
    else:
        for worker in prange(workers):
            split_rows(
                worker * count // workers,
                (worker + 1) * count // workers,
                qkv,
                shape,
                norms,
                cos,
                sin,
                query,
                key,
                value,
            )
