"""A block's small operations, each in one pass over memory (Day 4.7)."""

from __future__ import annotations

import numpy as np
from numba import prange

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.exponential import exponential
from tiny_llm.fast.rows8 import GROUP, put_group, quantize_row, quantize_row_twice
from tiny_llm.fast.vectors import (
    floats,
    fma,
    load_floats,
    store_floats,
    sum_of_lanes,
)

FEW = 16
"""Up to so many rows one thread does small operations faster than several, which have to be woken."""


@exact_inlined
def root_mean_square(x, start, width, eps):
    """What RMSNorm multiplies by: 1 / √(mean(x²) + eps) of ``width`` numbers from ``x[start]`` on.

    Lane j of a register adds up the squares of numbers j, j + 16, …; then the lanes are added. So the result depends
    on these numbers alone, to the last bit.

    Args:
        x: float32; other rows lie before and behind these numbers.
        start: index of the first of them.
        width: how many: a multiple of 16.
        eps: float32.

    Returns:
        float32.
    """
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_inlined
def normalize_row(x, row, width, weight, eps, rows):
    """RMSNorm of a row: each number times :func:`root_mean_square` times its weight, written by ``put_group``.

    Args:
        x: float32 [T·width], T rows one behind the other; only read.
        row: which of them.
        width: E, a multiple of 32: numbers of a row.
        weight: float32 [width], the norm's.
        eps: float32.
        rows: where to: the same row of :class:`Rows8`, which has width / 32 groups per row, or of a float32 array;
            :func:`tiny_llm.fast.rows8.put_group` takes both. Other rows stay as they are.
    """
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
def gate_16(gate_up, at, width):
    """silu(gate) · up of 16 numbers, where silu(x) = x / (1 + e⁻ˣ).

    Args:
        gate_up: float32; only read.
        at: index of the first of the gate's 16 numbers; up's lie ``width`` behind them.

    Returns:
        a register.
    """
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_inlined
def gate_row(gate_up, row, width, rows):
    """silu(gate) · up of a row, written by ``put_group``.

    Args:
        gate_up: float32 [T·2·width], a token's row has first the gate's numbers and then up's; only read.
        row: which of the T rows.
        width: F, a multiple of 32.
        rows: where to: the same row of :class:`Rows8` or of a float32 array, as for :func:`normalize_row`.
    """
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
    """A head turned by the angles of its token: Day 1.2's pairs (a, b) of the two halves.

    They become (a · cos − b · sin, b · cos + a · sin).

    Args:
        qkv: float32; the head's numbers begin at ``qkv[start]``; only read.
        cos, sin: float32 [T·size/2], the angles of all tokens, one token behind the other.
        row: which token.
        size: D, a multiple of 32: numbers of the head.
        out: float32; the turned head begins at ``out[at]``.
    """
    raise NotImplementedError("Week 4 Day 7 Task 4: Small operations, fused")


@exact_inlined
def normalize_head(qkv, start, size, weight, eps):
    """RMSNorm of the ``size`` numbers from ``qkv[start]`` on, in their place."""
    factor = floats(root_mean_square(qkv, start, size, eps))
    for i in range(0, size, 16):
        store_floats(qkv, start + i, load_floats(qkv, start + i) * factor * load_floats(weight, i))


@exact_inlined
def split_row(qkv, row, shape, norms, cos, sin, query, key, value):
    """Queries and keys of a token, normalized where the model does so, then rotated; and its values.

    Args:
        qkv: float32 [T·(H + 2·Hkv)·D]: a token's row has its H heads of queries, Hkv of keys, Hkv of values. Heads
            that have a norm are overwritten by what :func:`normalize_head` makes of them.
        row: which token.
        shape: H, Hkv, D.
        norms: :class:`tiny_llm.fast.parts.HeadNorms`: ``query`` and ``key`` are the weights of a norm, float32 [D],
            or have length 0 where there is none.
        cos, sin: float32 [T·D/2].
        query: float32 [T·H·D]; this token's row is written.
        key, value: float32 [T·Hkv·D]; likewise. Values are neither normalized nor rotated.
    """
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
