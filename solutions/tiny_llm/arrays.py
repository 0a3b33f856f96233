"""The seam between the tracks: what a module that serves both needs of the framework's arrays (given code).

`tiny_llm_mlx/arrays.py` has the same names for MLX.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Tensor", "device_of", "empty", "split", "token_array", "zeros"]


def token_array(ids: Sequence[int] | Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """Token ids, or positions, as integers, [L] or [B, L], on the device of ``like``."""
    return torch.tensor(ids, dtype=torch.int64, device=like.device)


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Storage of any content, in the dtype and on the device of ``like``."""
    return like.new_empty(tuple(shape))


def zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros in the dtype and on the device of ``like``."""
    return like.new_zeros(tuple(shape))


def split(array: Tensor, sizes: Sequence[int], axis: int) -> tuple[Tensor, ...]:
    """Cut an axis into parts of these sizes, in order; the sizes add up to the axis."""
    return array.split(list(sizes), dim=axis)


def device_of(array: Tensor) -> torch.device:
    """Where the array lies."""
    return array.device
