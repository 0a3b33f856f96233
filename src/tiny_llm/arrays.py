"""The seam between the tracks: what a module that serves both needs of the framework's arrays (given code).

`tiny_llm_mlx/arrays.py` has the same names for MLX.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

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


def integers(numbers: Sequence[int] | Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """Whole numbers, such as token ids, positions or places, [n] or [m, n], on the device of ``like``.

    They are int64, or have the dtype of ``like`` if that holds whole numbers, too.
    """
    dtype = torch.int64 if like.is_floating_point() else like.dtype
    return torch.tensor(numbers, dtype=dtype, device=like.device)


def host_array(numbers: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
    """Whole numbers, int32 [n] or [m, n], that code on the host reads and writes."""
    return torch.tensor(numbers, dtype=torch.int32)


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Storage of any content, in the dtype and on the device of ``like``."""
    return like.new_empty(tuple(shape))


def zeros(shape: Sequence[int], like: Tensor) -> Tensor:
    """Zeros in the dtype and on the device of ``like``."""
    return like.new_zeros(tuple(shape))


def split(array: Tensor, sizes: Sequence[int], axis: int) -> tuple[Tensor, ...]:
    """Cut an axis into parts of these sizes, in order; the sizes add up to the axis."""
    return array.split(list(sizes), dim=axis)


def concatenate(arrays: Sequence[Tensor]) -> Tensor:
    """Some arrays, at least one, as one: joined along their first axis."""
    return torch.cat(list(arrays))


def with_rows(array: Tensor, rows: Tensor, new: Tensor) -> Tensor:
    """A copy of ``array`` whose ``rows`` (integers [n]) are those of ``new`` [n, …]."""
    return array.index_copy(0, rows, new)


def device_of(array: Tensor) -> torch.device:
    """Where the array lies."""
    return array.device


def evaluate(array: Tensor) -> None:
    """Nothing to do: torch has computed the array, or has begun to. MLX computes only when it is asked."""
