"""Registers: 16 numbers of 32 bits that one instruction works on (Day 4.7, given code).

Each function says in NumPy what an instruction or two do; a register is an array of 16. In plain Python it runs as it
stands here, and notices an index outside the array. Compiled kernels get the instructions themselves, from
`compiled_vectors.py`, with the same results to the last bit, and check no index.

Registers in `Floats` hold float32, those in `Ints` int32. Two registers of float32 can be added, subtracted,
multiplied and divided with `+ - * /`. There is nothing else: −x is `floats(0.0) - x`, and the smaller one of two is
0 minus the :func:`largest` of −a and −b. Indices count the elements of an array in the order of memory, in which it
must lie in one piece.
"""

from __future__ import annotations

import numpy as np

LANES = 16
"""How many numbers a register holds."""

_NIBBLES = np.int32(0x0F0F0F0F)


def elements(array: np.ndarray, at: int, count: int) -> np.ndarray:
    """``count`` elements of an array from number ``at`` on, as a view.

    Raises:
        IndexError: the array doesn't have them all.
        ValueError: the array doesn't lie in one piece.
    """
    if not array.flags.c_contiguous:
        raise ValueError("the array does not lie in one piece in memory")
    if not 0 <= at <= array.size - count:
        wanted = f"element {at}" if count == 1 else f"elements {at} to {at + count - 1}"
        raise IndexError(f"{wanted} of an array that has {array.size}")
    return array.reshape(-1)[at : at + count]


def load_ints(array: np.ndarray, at: int) -> np.ndarray:
    """64 bytes from element ``at`` on, as 16 int32.

    Args:
        array: whole numbers of 8, 16 or 32 bits.
        at: index of the first element.

    Returns:
        int32 [16].

    Raises:
        IndexError: they aren't all in the array (in plain Python).
    """
    return elements(array, at, 64 // array.itemsize).copy().view(np.int32)


def load_floats(array: np.ndarray, at: int) -> np.ndarray:
    """16 float32 from element ``at`` on.

    Args:
        array: float32.
        at: index of the first element.

    Returns:
        float32 [16].

    Raises:
        IndexError: they aren't all in the array (in plain Python).
    """
    return elements(array, at, LANES).copy()


def load_halves(array: np.ndarray, at: int) -> np.ndarray:
    """16 float16, which are 32 bytes from byte ``at`` on, as float32.

    Args:
        array: uint8.
        at: index of the first byte; any, also an odd one.

    Returns:
        float32 [16].

    Raises:
        IndexError: they aren't all in the array (in plain Python).
    """
    return elements(array, at, 2 * LANES).copy().view(np.float16).astype(np.float32)


def load_bfloats(array: np.ndarray, at: int) -> np.ndarray:
    """16 bfloat16 from element ``at`` on, as float32: their bits become the upper half.

    Args:
        array: int16 or uint16, bits of bfloat16.
        at: index of the first element.

    Returns:
        float32 [16].

    Raises:
        IndexError: they aren't all in the array (in plain Python).
    """
    bits = elements(array, at, LANES).view(np.uint16).astype(np.uint32)
    return (bits << np.uint32(16)).view(np.float32)


def fetch(array: np.ndarray, at: int) -> None:
    """Begin to bring element ``at`` from memory to the processor's caches, without waiting for it. In NumPy: nothing.

    Args:
        array: float32, or whole numbers of 8, 16 or 32 bits.
        at: index of the element; it may lie outside the array.
    """


def store_floats(array: np.ndarray, at: int, x: np.ndarray) -> None:
    """Write 16 float32 to element ``at`` and behind it.

    Args:
        array: float32; or int16 or uint16 for the bits of the nearest bfloat16, of two equally near the even one.
            NaN stays NaN, unless it carries a message in its bits.
        at: index of the first element.
        x: float32 [16].

    Raises:
        IndexError: they don't all fit into the array (in plain Python).
    """
    place = elements(array, at, LANES)
    if array.itemsize == 4:
        place[:] = x
    else:
        bits = x.view(np.uint32)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        place[:] = ((bits + odd + np.uint32(0x7FFF)) >> np.uint32(16)).astype(np.uint16).view(array.dtype)


def store_bytes(array: np.ndarray, at: int, x: np.ndarray) -> None:
    """Write 16 whole numbers from −128 to 127 to element ``at`` and behind it.

    Args:
        array: int8.
        at: index of the first element.
        x: float32 [16].

    Raises:
        IndexError: they don't all fit into the array (in plain Python).
        ValueError: another number is among them (in plain Python; compiled, anything may be written then).
    """
    place = elements(array, at, LANES)
    if not np.all((x == np.rint(x)) & (x >= -128) & (x <= 127)):
        raise ValueError(f"not only whole numbers from −128 to 127: {x}")
    place[:] = x.astype(np.int8)


def floats(number: float | np.floating) -> np.ndarray:
    """The same number, as float32, in all 16 lanes."""
    return np.full(LANES, number, np.float32)


def low_nibbles(x: np.ndarray) -> np.ndarray:
    """The lower four bits of each byte: int32 [16] → int32 [16]."""
    return x & _NIBBLES


def high_nibbles(x: np.ndarray) -> np.ndarray:
    """The upper four bits of each byte, moved down: int32 [16] → int32 [16]."""
    return (x >> np.int32(4)) & _NIBBLES


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a · b + c, rounded once, where `a * b + c` rounds twice: float32 [16] each → float32 [16]."""
    product, term = (
        a.astype(np.float64) * b,
        c.astype(np.float64),
    )  # a product of two float32 is exact in float64
    total = product + term
    part = total - product
    lost = (product - (total - part)) + (term - part)  # by rounding to float64
    # Rounded to float32, a total beside a tie must not be taken for the tie: where something was lost, its last bit
    # becomes 1.
    bits = total.view(np.int64)
    inexact = ((lost > 0) | (lost < 0)) & (bits & 1 == 0)
    bits = bits + np.where(inexact, np.where((lost > 0) == (total > 0), 1, -1), 0)
    return bits.view(np.float64).astype(np.float32)


def largest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The larger number of each lane; beside NaN, the other. Of 0 and −0 it may be either.

    float32 [16] each → float32 [16].
    """
    return np.fmax(a, b)


def magnitude(x: np.ndarray) -> np.ndarray:
    """Each number without its sign: float32 [16] → float32 [16]."""
    return np.abs(x)


def nearest(x: np.ndarray) -> np.ndarray:
    """The nearest whole numbers, of two equally near the even one: float32 [16] → float32 [16]."""
    return np.rint(x)


def power_of_2(x: np.ndarray) -> np.ndarray:
    """2 to the power of whole numbers from −126 to 127: float32 [16] → float32 [16].

    Raises:
        ValueError: another number is among them (in plain Python; compiled, anything may come out then).
    """
    if not np.all((x == np.rint(x)) & (x >= -126) & (x <= 127)):
        raise ValueError(f"not only whole numbers from −126 to 127: {x}")
    return ((x.astype(np.int32) + 127) << 23).view(np.float32)


def first_lanes(x: np.ndarray, count: int, other: np.ndarray) -> np.ndarray:
    """The first ``count`` lanes of x, and the rest from ``other``.

    Args:
        x, other: float32 [16].
        count: any number: 0 and less stand for none, 16 and more for all.

    Returns:
        float32 [16].
    """
    return np.where(np.arange(LANES) < count, x, other)


def sum_of_lanes(x: np.ndarray) -> np.float32:
    """The sum of all lanes, as float32: always the second half added to the first, until one number is left."""
    for half in (8, 4, 2, 1):
        x = x[:half] + x[half:]
    return x[0]


def largest_lane(x: np.ndarray) -> np.float32:
    """The largest number of all lanes, as float32; NaN counts only where there is nothing else."""
    return np.fmax.reduce(x)
