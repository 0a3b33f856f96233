"""The seam between the tracks: what a module that serves both needs of the framework's arrays (given code).

`tiny_llm/arrays.py` has the same names for torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

__all__ = ["Tensor", "device_of", "empty", "split", "token_array", "zeros"]

Tensor = mx.array


def token_array(ids: Sequence[int] | Sequence[Sequence[int]], like: mx.array) -> mx.array:
    """Token ids, or positions, as integers, [L] or [B, L]. ``like`` is there for torch, which needs its device."""
    return mx.array(list(ids), dtype=mx.int32)


def empty(shape: Sequence[int], like: mx.array) -> mx.array:
    """Storage in the dtype of ``like``. MLX has no array without content: it holds zeros."""
    return zeros(shape, like)


def zeros(shape: Sequence[int], like: mx.array) -> mx.array:
    """Zeros in the dtype of ``like``."""
    return mx.zeros(tuple(shape), dtype=like.dtype)


def split(array: mx.array, sizes: Sequence[int], axis: int) -> tuple[mx.array, ...]:
    """Cut an axis into parts of these sizes, in order; the sizes add up to the axis."""
    return tuple(mx.split(array, np.cumsum(sizes)[:-1].tolist(), axis=axis))


def device_of(array: mx.array) -> None:
    """None: MLX's memory is one for all devices, and an array belongs to none."""
