"""How the CPU kernels are compiled, and how they get a tensor's memory (given code)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from numba.extending import overload
from torch import Tensor

from tiny_llm.kernels.kept import keep

# The compiler may reorder sums, without which it can't use vector instructions for them, and fuse a multiplication
# with an addition. It may not assume that there is no infinity or NaN.
_FAST = {"reassoc", "contract", "nsz"}


def kernel(function: Any) -> Any:
    """Compile a function with Numba; its `prange` loops are spread over the cores.

    The first call with new types compiles, which takes seconds; the machine code is then kept on disk for later runs,
    until the kernel, or anything that it uses, is changed.
    """
    # Without a prange, as in a stub, there is nothing to spread, and Numba would warn about that.
    spread = "prange" in function.__code__.co_names
    return keep(numba.njit(parallel=spread, fastmath=_FAST)(function))


def inlined(function: Any) -> Any:
    """Let kernels call a function: its body replaces the call, which leaves the compiler free to vectorize."""
    return numba.njit(inline="always", fastmath=_FAST)(function)


def as_numpy(x: Tensor) -> np.ndarray:
    """A contiguous CPU tensor's own memory, or a contiguous copy; the bits of bfloat16 come as int16.

    Contiguous, because the compiler uses vector instructions only where it knows that neighbors lie side by side.
    """
    x = x.contiguous()
    return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()


def as_floats(tile: np.ndarray, room: np.ndarray) -> np.ndarray:
    """In a kernel: float32 numbers for a tile, which holds float32 or the bits of bfloat16.

    The 16 bits of a bfloat16 are the upper half of the float32 of the same value.

    Args:
        tile: [n, D], float32 or int16.
        room: float32 [n or more, D]; widened numbers are written here.

    Returns:
        float32 [n, D]: the tile, or the first n rows of ``room``.
    """
    if tile.dtype == np.float32:
        return tile
    room[: len(tile)] = (tile.astype(np.int32) << 16).view(np.float32)
    return room[: len(tile)]


@overload(as_floats, inline="always")
def _as_floats(tile, room):  # the compiled form; it is chosen by type, where the other looks at the dtype
    if not isinstance(tile.dtype, numba.types.Integer):
        return lambda tile, room: tile

    def widened(tile, room):
        for j in range(tile.shape[0]):
            for d in range(tile.shape[1]):
                room[j, d] = np.int32(np.int32(tile[j, d]) << 16).view(np.float32)
        return room[: tile.shape[0]]

    return widened


def copy_as_floats(source: np.ndarray, target: np.ndarray) -> None:
    """In a kernel: copy a row of float32, or widen a row of the bits of bfloat16.

    Args:
        source: [D], float32 or int16.
        target: float32 [D]; overwritten.
    """
    target[:] = as_floats(source[None], np.empty((1, len(source)), np.float32))[0]


@overload(copy_as_floats, inline="always")
def _copy_as_floats(source, target):  # the compiled form, as above
    if not isinstance(source.dtype, numba.types.Integer):

        def copied(source, target):
            for d in range(len(source)):
                target[d] = source[d]

        return copied

    def widened(source, target):
        for d in range(len(source)):
            target[d] = np.int32(np.int32(source[d]) << 16).view(np.float32)

    return widened
