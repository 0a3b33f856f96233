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


class Rows8(NamedTuple):
    """Room for T rows of K numbers in 8 bits, one row behind the other."""

    codes: np.ndarray  # int8 [T·K]: from −127 to 127
    steps: np.ndarray  # float32 [T·K/32]: number = code · step
    offsets: np.ndarray  # float32 [T·K/32]: the sum of the numbers of the group


def make_rows8(numbers: int) -> Rows8:
    """Room for some rows with ``numbers`` numbers in all, T·K."""
    groups = numbers // GROUP
    return Rows8(np.zeros(numbers, np.int8), np.zeros(groups, np.float32), np.zeros(groups, np.float32))


@exact_inlined
def quantize_group(low, high, group, rows):
    """Write 32 numbers, in two registers, as group number ``group`` of all rows.

    The step is the largest magnitude / 127. A group of zeros has step 0 and codes 0.
    """
    raise NotImplementedError("Week 4 Day 7 Task 2: Activations in 8 bits")


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
    """Write the ``width`` numbers from ``x[start]`` on, float32, as the groups from number ``group`` on."""
    raise NotImplementedError("Week 4 Day 7 Task 2: Activations in 8 bits")


@exact_inlined
def quantize_row_twice(x, start, width, group, rows):
    """Write a row in 8 bits, and what is left of it as a row of its own behind: together they have some 15 bits.

    Args:
        x: float32; the ``width`` numbers from ``x[start]`` on are the row.
        group: where the first of the two rows begins, in groups.
    """
    raise NotImplementedError("Week 4 Day 7 Task 2: Activations in 8 bits")
