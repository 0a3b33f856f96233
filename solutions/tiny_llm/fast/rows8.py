"""Activations in 8 bits (Day 4.7): each group of 32 numbers of a row becomes 32 whole numbers and a step."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numba.extending import overload

from tiny_llm.fast.compiling import exact_inlined
from tiny_llm.fast.vectors import (
    floats,
    largest,
    largest_lane,
    load_floats,
    magnitude,
    nearest,
    store_bytes,
    store_floats,
    sum_of_lanes,
)

GROUP = 32
"""Numbers that share a step: as many as weights share a scale."""
SMALLEST = np.float32(2.0**-126)
"""A step below this is kept as it is, but its inverse counts as 0, and so all codes are 0: 1 / step might be ∞."""


class Rows8(NamedTuple):
    """Room for T rows of K numbers in 8 bits, one row behind the other, in groups of 32 numbers.

    Group i of all rows has codes 32 · i … 32 · i + 31, one step and one offset. There may be room for more rows than
    are in use.
    """

    codes: np.ndarray  # int8 [T·K]: from −127 to 127
    steps: np.ndarray  # float32 [T·K/32]: number = code · step
    offsets: np.ndarray  # float32 [T·K/32]: the sum of the group's numbers as they are here, step · Σ codes


def make_rows8(numbers: int) -> Rows8:
    """Room for some rows with ``numbers`` numbers in all, T·K."""
    groups = numbers // GROUP
    return Rows8(np.zeros(numbers, np.int8), np.zeros(groups, np.float32), np.zeros(groups, np.float32))


@exact_inlined
def inverse_of(step):
    """1 / step in float32, with which numbers are counted in steps; 0 where the step is below SMALLEST.

    That is so for a group of zeros.

    Args:
        step: float32, not negative.

    Returns:
        float32.
    """
    return np.float32(1) / step if step >= SMALLEST else np.float32(0)


@exact_inlined
def quantize_group(low, high, group, rows):
    """Write 32 numbers as one group: their codes, the step and the offset; nothing else of ``rows`` changes.

    The step is the largest magnitude / 127 in float32. A code is number · inverse of the step (:func:`inverse_of`),
    rounded to the nearest whole number, of two equally near to the even one. The offset is the sum of what was kept,
    step · Σ codes, not that of the given numbers. So a group of zeros has codes, step and
    offset 0; one whose step is below SMALLEST has this step, and codes and offset 0.

    Args:
        low, high: two registers of float32, the first 16 numbers and the other 16.
        group: which group of all rows it is.
        rows: :class:`Rows8`; changed.
    """
    peak = largest_lane(largest(magnitude(low), magnitude(high)))
    step = peak / np.float32(127)
    inverse = floats(inverse_of(step))
    low_codes, high_codes = nearest(low * inverse), nearest(high * inverse)
    store_bytes(rows.codes, group * GROUP, low_codes)
    store_bytes(rows.codes, group * GROUP + 16, high_codes)
    rows.steps[group] = step
    rows.offsets[group] = step * sum_of_lanes(low_codes + high_codes)


def put_group(low, high, group, rows):
    """Write 32 numbers, in two registers, as group number ``group`` of all rows.

    Args:
        rows: :class:`Rows8`, or an array of all numbers: float32, or bits of bfloat16.
    """
    if isinstance(rows, Rows8):
        quantize_group(low, high, group, rows)
    else:
        store_floats(rows, group * GROUP, low)
        store_floats(rows, group * GROUP + 16, high)


@overload(put_group, inline="always")
def _put_group(low, high, group, rows):  # the compiled form; it is chosen by type
    if isinstance(rows, numba.types.BaseNamedTuple):
        return lambda low, high, group, rows: quantize_group(low, high, group, rows)

    def stored(low, high, group, rows):
        store_floats(rows, group * GROUP, low)
        store_floats(rows, group * GROUP + 16, high)

    return stored


@exact_inlined
def quantize_row(x, start, width, group, rows):
    """Write a row as groups of 32, from group number ``group`` on; nothing else of ``rows`` changes.

    Args:
        x: float32; the ``width`` numbers from ``x[start]`` on are the row, and nothing else is read.
        width: a multiple of 32.
        rows: :class:`Rows8`; changed.
    """
    for i in range(width // GROUP):
        at = start + i * GROUP
        quantize_group(load_floats(x, at), load_floats(x, at + 16), group + i, rows)


@exact_inlined
def quantize_row_twice(x, start, width, group, rows):
    """Write a row in 8 bits, and what is left of it as a row of its own behind: together they have some 15 bits.

    The first row is that of :func:`quantize_row`. Left of a number is number − code · step, in float32. The second
    row, with steps of its own, begins right behind the first: width / 32 groups later. Nothing else of ``rows``
    changes.

    Args:
        x: float32; the ``width`` numbers from ``x[start]`` on are the row, and nothing else is read.
        width: a multiple of 32.
        group: the number of the group with which the first of the two rows begins.
        rows: :class:`Rows8`; changed.
    """
    for i in range(width // GROUP):
        at, here = start + i * GROUP, group + i
        low, high = load_floats(x, at), load_floats(x, at + 16)
        quantize_group(low, high, here, rows)
        step, inverse = floats(rows.steps[here]), floats(inverse_of(rows.steps[here]))
        low_rest, high_rest = low - nearest(low * inverse) * step, high - nearest(high * inverse) * step
        quantize_group(low_rest, high_rest, here + width // GROUP, rows)
