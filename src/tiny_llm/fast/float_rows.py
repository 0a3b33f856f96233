"""A block's small operations on rows in float32 or bfloat16, by those of `small.py` (Day 4.7, given code).

What a projection gives is widened to float32 row by row, in memory that stays in the processor's cache. ``rows`` to
be written, and ``numbers`` that are read, are arrays of float32, or of uint16 with bits of bfloat16.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from numba import prange
from numba.extending import overload
from torch import Tensor

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.small import FEW, gate_row, normalize_row, split_row
from tiny_llm.fast.vectors import load_bfloats, load_floats, store_floats


def array_of(tensor: Tensor) -> np.ndarray:
    """A tensor's memory, as kernels take it: float32, or uint16 with bits of bfloat16; flat."""
    numbers = tensor if tensor.dtype == torch.float32 else tensor.view(torch.uint16)
    return numbers.numpy().reshape(-1)


def load_numbers(array, at):
    """16 numbers from element ``at`` on, as float32.

    Args:
        array: float32, or bits of bfloat16.
    """
    return load_floats(array, at) if array.dtype == np.float32 else load_bfloats(array, at)


@overload(load_numbers, inline="always")
def _load_numbers(array, at):  # the compiled form; it is chosen by type
    if array.dtype == numba.types.float32:
        return lambda array, at: load_floats(array, at)
    return lambda array, at: load_bfloats(array, at)


@exact_inlined
def widen(numbers, start, width, row):
    """Write ``width`` numbers from element ``start`` on to the beginning of ``row``, in float32."""
    for i in range(0, width, 16):
        store_floats(row, i, load_numbers(numbers, start + i))


@exact_inlined
def add_row(numbers, start, width, x):
    """Add ``width`` numbers from element ``start`` on to those of x in the same places."""
    for i in range(start, start + width, 16):
        store_floats(x, i, load_floats(x, i) + load_numbers(numbers, i))


@exact_kernel
def add_rows(first, last, numbers, x, width):
    for row in range(first, last):
        add_row(numbers, row * width, width, x)


@exact_kernel
def add(count, workers, numbers, x, width):
    """Add the first rows of a projection to those of x, float32."""
    if count <= FEW:
        add_rows(0, count, numbers, x, width)
    else:
        for worker in prange(workers):
            add_rows(worker * count // workers, (worker + 1) * count // workers, numbers, x, width)


@exact_kernel
def add_and_normalize_rows(first, last, numbers, x, width, weight, eps, rows):
    for row in range(first, last):
        add_row(numbers, row * width, width, x)
        normalize_row(x, row, width, weight, eps, rows)


@exact_kernel
def add_and_normalize(count, workers, numbers, x, width, weight, eps, rows):
    """Add the first rows of a projection to those of x, float32; then RMSNorm of these into ``rows``."""
    if count <= FEW:
        add_and_normalize_rows(0, count, numbers, x, width, weight, eps, rows)
    else:
        for worker in prange(workers):
            first, last = worker * count // workers, (worker + 1) * count // workers
            add_and_normalize_rows(first, last, numbers, x, width, weight, eps, rows)


@exact_kernel
def gate_some(first, last, gate_up, width, rows):
    wide = np.empty(2 * width, np.float32)
    for row in range(first, last):
        widen(gate_up, row * 2 * width, 2 * width, wide)
        gate_row(wide, 0, width, rows[row * width :])


@exact_kernel
def gate_numbers(count, workers, gate_up, width, rows):
    """silu(gate) · up of the first rows, into ``rows``."""
    if count <= FEW:
        gate_some(0, count, gate_up, width, rows)
    else:
        for worker in prange(workers):
            gate_some(worker * count // workers, (worker + 1) * count // workers, gate_up, width, rows)


@exact_kernel
def split_some(first, last, qkv, shape, norms, cos, sin, query, key, value):
    H, Hkv, D = shape
    width = (H + 2 * Hkv) * D
    wide = np.empty(width, np.float32)
    for row in range(first, last):
        widen(qkv, row * width, width, wide)
        angles, keys = row * (D // 2), row * Hkv * D
        split_row(
            wide,
            0,
            shape,
            norms,
            cos[angles:],
            sin[angles:],
            query[row * H * D :],
            key[keys:],
            value[keys:],
        )


@exact_kernel
def split_numbers(count, workers, qkv, shape, norms, cos, sin, query, key, value):
    """Rotated queries and keys, and values, of the first rows, in float32."""
    if count <= FEW:
        split_some(0, count, qkv, shape, norms, cos, sin, query, key, value)
    else:
        for worker in prange(workers):
            first, last = worker * count // workers, (worker + 1) * count // workers
            split_some(first, last, qkv, shape, norms, cos, sin, query, key, value)
