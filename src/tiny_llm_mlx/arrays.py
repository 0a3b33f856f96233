"""The seam between the tracks: what a module that serves both needs of the framework's arrays (given code).

`tiny_llm/arrays.py` has the same names for torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

__all__ = [
    "Tensor",
    "concatenate",
    "device_of",
    "empty",
    "evaluate",
    "host_array",
    "integers",
    "split",
    "with_rows",
    "zeros",
]

Tensor = mx.array


def integers(numbers: Sequence[int] | Sequence[Sequence[int]], like: mx.array) -> mx.array:
    """Whole numbers, such as token ids, positions or places, [n] or [m, n].

    They are int32, or have the dtype of ``like`` if that holds whole numbers, too.
    """
    dtype = like.dtype if mx.issubdtype(like.dtype, mx.integer) else mx.int32
    return mx.array(list(numbers), dtype=dtype)


def host_array(numbers: Sequence[int] | Sequence[Sequence[int]]) -> np.ndarray:
    """Whole numbers, int32 [n] or [m, n], that code on the host reads and writes: NumPy's, not MLX's.

    A write into an MLX array is one more operation to compute later; the host wants to read at once.
    """
    return np.array(numbers, dtype=np.int32)


def empty(shape: Sequence[int], like: mx.array) -> mx.array:
    """Storage in the dtype of ``like``. MLX has no array without content: it holds zeros."""
    return zeros(shape, like)


def zeros(shape: Sequence[int], like: mx.array) -> mx.array:
    """Zeros in the dtype of ``like``."""
    return mx.zeros(tuple(shape), dtype=like.dtype)


def split(array: mx.array, sizes: Sequence[int], axis: int) -> tuple[mx.array, ...]:
    """Cut an axis into parts of these sizes, in order; the sizes add up to the axis."""
    return tuple(mx.split(array, np.cumsum(sizes)[:-1].tolist(), axis=axis))


def concatenate(arrays: Sequence[mx.array]) -> mx.array:
    """Some arrays, at least one, as one: joined along their first axis."""
    return mx.concatenate(list(arrays))


def with_rows(array: mx.array, rows: mx.array, new: mx.array) -> mx.array:
    """A copy of ``array`` whose ``rows`` (integers [n]) are those of ``new`` [n, …]."""
    copy = mx.array(array)
    copy[rows] = new
    return copy


def device_of(array: mx.array) -> None:
    """None: MLX's memory is one for all devices, and an array belongs to none."""


def evaluate(array: mx.array) -> None:
    """Compute the array now, and all that it is made of. MLX puts off what no code has asked for."""
    mx.eval(array)
