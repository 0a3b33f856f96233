"""Tiles: a register for each of R rows, which meet the same weights (Day 4.7, given code).

What is loaded once, 16 columns of a matrix, is used for all rows of the tile. A tile is an array [R, 16]. As in
`vectors.py`, each function says in NumPy what compiled kernels do with instructions. The compiler must know R: it is
a constant. Tiles have no operators such as +: a sum begins as a tile, and these functions add to it.
"""

from __future__ import annotations

import numpy as np

from tiny_llm.fast.vectors import LANES, elements, fma


def _of_rows(array: np.ndarray, at: int, stride: int, rows: int, count: int) -> np.ndarray:
    """For each row r, ``count`` elements from number at + r · stride on: [R, count]."""
    return np.stack([elements(array, at + row * stride, count) for row in range(rows)])


def zero_ints(rows: int) -> np.ndarray:
    """A tile of zeros: int32 [R, 16]."""
    return np.zeros((rows, LANES), np.int32)


def zero_floats(rows: int) -> np.ndarray:
    """A tile of zeros: float32 [R, 16]."""
    return np.zeros((rows, LANES), np.float32)


def load_rows(array: np.ndarray, at: int, stride: int, rows: int) -> np.ndarray:
    """A tile from memory: for each row r, 16 numbers from element at + r · stride on.

    Args:
        array: float32.
        at: index of the first number of row 0.
        stride: elements from one row to the next.
        rows: R.

    Returns:
        float32 [R, 16].

    Raises:
        IndexError: they aren't all in the array (in plain Python).
    """
    return _of_rows(array, at, stride, rows, LANES)


def store_rows(array: np.ndarray, at: int, stride: int, tile: np.ndarray) -> None:
    """Write a tile: the 16 numbers of each row r to element at + r · stride and behind it.

    Args:
        array: float32.
        at: index of the first number of row 0.
        stride: elements from one row to the next.
        tile: float32 [R, 16].

    Raises:
        IndexError: they don't all fit into the array (in plain Python).
    """
    for row, numbers in enumerate(tile):
        elements(array, at + row * stride, LANES)[:] = numbers


def dot4_rows(totals: np.ndarray, weights: np.ndarray, x: np.ndarray, at: int, stride: int) -> np.ndarray:
    """Add four products per lane to each row: weights · x[at + r · stride]. Whole numbers, exact.

    Args:
        totals: a tile, int32 [R, 16].
        weights: int32 [16], which hold 4 unsigned bytes each.
        x: int32 or uint32, which hold 4 signed bytes each.
        at: index of the number for row 0.
        stride: elements from one row's number to the next.

    Returns:
        int32 [R, 16].

    Raises:
        IndexError: they aren't all in x (in plain Python).
    """
    numbers = _of_rows(x, at, stride, len(totals), 1)
    left = weights.view(np.uint8).reshape(1, LANES, 4).astype(np.int32)
    right = numbers.view(np.int8).reshape(-1, 1, 4).astype(np.int32)
    return totals + (left * right).sum(axis=2, dtype=np.int32)


def fma_rows(totals: np.ndarray, weights: np.ndarray, x: np.ndarray, at: int, stride: int) -> np.ndarray:
    """Add a product per lane to each row, rounded once: weights · x[at + r · stride].

    Args:
        totals: a tile, float32 [R, 16].
        weights: float32 [16].
        x: float32.
        at: index of the number for row 0.
        stride: elements from one row's number to the next.

    Returns:
        float32 [R, 16].

    Raises:
        IndexError: they aren't all in x (in plain Python).
    """
    return fma(weights, _of_rows(x, at, stride, len(totals), 1), totals)


def add_scaled_rows(
    totals: np.ndarray,
    sums: np.ndarray,
    scales: np.ndarray,
    minima: np.ndarray,
    steps: np.ndarray,
    offsets: np.ndarray,
    at: int,
    stride: int,
) -> np.ndarray:
    """Add sums[r] · steps[i] · scales + offsets[i] · minima to each row r, where i = at + r · stride.

    Args:
        totals: a tile, float32 [R, 16].
        sums: a tile, int32 [R, 16].
        scales, minima: float32 [16].
        steps, offsets: float32.
        at: index of the numbers for row 0.
        stride: elements from one row's numbers to the next.

    Returns:
        float32 [R, 16].

    Raises:
        IndexError: they aren't all in ``steps`` and ``offsets`` (in plain Python).
    """
    factors = _of_rows(steps, at, stride, len(totals), 1)
    shifts = _of_rows(offsets, at, stride, len(totals), 1)
    totals = fma(sums.astype(np.float32) * factors, scales, totals)
    return fma(shifts, minima, totals)


def transpose_bfloats(
    array: np.ndarray, starts: np.ndarray, offset: int, target: np.ndarray, at: int
) -> None:
    """Write 32 numbers each of 16 tokens, widened, with the tokens side by side.

    target[at + 16 · i + j] becomes array[starts[j] + offset + i], for i < 32 and j < 16.

    Args:
        array: int16 or uint16, bits of bfloat16.
        starts: int64, where each token's numbers begin; the first 16 are read.
        offset: how far behind it the first of the 32 lies.
        target: float32.
        at: index of the first element to write.

    Raises:
        IndexError: ``starts`` has fewer, or what they name isn't all in ``array``, or doesn't all fit into
            ``target`` (in plain Python).
    """
    count = 2 * LANES
    tokens = [elements(array, start + offset, count) for start in elements(starts, 0, LANES)]
    bits = np.stack(tokens, axis=1).view(np.uint16).astype(np.uint32)
    elements(target, at, count * LANES)[:] = (bits << np.uint32(16)).view(np.float32).reshape(-1)
