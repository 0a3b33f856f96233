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
    total = floats(0.0)
    for i in range(start, start + width, 16):
        some = load_floats(x, i)
        total = fma(some, some, total)
    return np.float32(1) / np.sqrt(sum_of_lanes(total) / np.float32(width) + eps)


@exact_inlined
def normalize_row(x, row, width, weight, eps, rows):
    """RMSNorm of a row, in 8 bits."""
    start = row * width
    factor = floats(root_mean_square(x, start, width, eps))
    for i in range(width // GROUP):
        at = i * GROUP
        low = load_floats(x, start + at) * factor * load_floats(weight, at)
        high = load_floats(x, start + at + 16) * factor * load_floats(weight, at + 16)
        put_group(low, high, row * (width // GROUP) + i, rows)


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
    y = largest(x * floats(1.4426950408889634), floats(-126.0))
    y = floats(0.0) - largest(floats(0.0) - y, floats(-127.0))
    whole = nearest(y)
    rest = y - whole
    p = fma(rest, floats(1.5403530393381608e-4), floats(1.3333558146428443e-3))
    p = fma(rest, p, floats(9.618129107628477e-3))
    p = fma(rest, p, floats(5.550410866482158e-2))
    p = fma(rest, p, floats(2.402265069591007e-1))
    p = fma(rest, p, floats(6.931471805599453e-1))
    p = fma(rest, p, floats(1.0))
    return p * power_of_2(whole)


@exact_inlined
def gate_16(gate_up, at, width):
    """silu(gate) · up of 16 numbers; up's lie ``width`` behind the gate's."""
    x = load_floats(gate_up, at)
    return x / (floats(1.0) + exponential(floats(0.0) - x)) * load_floats(gate_up, at + width)


@exact_inlined
def gate_row(gate_up, row, width, rows):
    start = row * 2 * width
    for i in range(width // GROUP):
        at = start + i * GROUP
        low, high = gate_16(gate_up, at, width), gate_16(gate_up, at + 16, width)
        put_group(low, high, row * (width // GROUP) + i, rows)


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
    half = size // 2
    for i in range(0, half, 16):
        a, b = load_floats(qkv, start + i), load_floats(qkv, start + half + i)
        c, s = load_floats(cos, row * half + i), load_floats(sin, row * half + i)
        store_floats(out, at + i, a * c - b * s)
        store_floats(out, at + half + i, b * c + a * s)


@exact_inlined
def normalize_head(qkv, start, size, weight, eps):
    factor = floats(root_mean_square(qkv, start, size, eps))
    for i in range(0, size, 16):
        store_floats(qkv, start + i, load_floats(qkv, start + i) * factor * load_floats(weight, i))


@exact_inlined
def split_row(qkv, row, shape, norms, cos, sin, query, key, value):
    """Queries and keys of a token, normalized where the model does so, and rotated; its values."""
    H, Hkv, D = shape
    start = row * (H + 2 * Hkv) * D
    for head in range(H + Hkv):
        at = start + head * D
        weight = norms.query if head < H else norms.key
        if len(weight):
            normalize_head(qkv, at, D, weight, norms.eps)
        if head < H:
            rotate_head(qkv, at, cos, sin, row, D, query, (row * H + head) * D)
        else:
            rotate_head(qkv, at, cos, sin, row, D, key, (row * Hkv + head - H) * D)
    for i in range(0, Hkv * D, 16):
        store_floats(value, row * Hkv * D + i, load_floats(qkv, start + (H + Hkv) * D + i))


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
