"""How the CPU kernels are compiled, and what they see of a tensor (given code)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from numba.extending import overload
from torch import Tensor

# The compiler may reorder sums, without which it can't use vector instructions for them, and fuse a multiplication
# with an addition. It may not assume that there is no infinity or NaN.
_FAST = {"reassoc", "contract", "nsz"}


def kernel(function: Any) -> Any:
    """Compile a function with Numba; its `prange` loops are spread over the cores.

    The first call with new types compiles, which takes seconds; the machine code is then kept on disk for later runs.
    """
    # Where there is no prange, as in a stub, there is nothing to spread, and Numba would warn that it found nothing.
    spread = "prange" in function.__code__.co_names
    return numba.njit(parallel=spread, fastmath=_FAST, cache=True)(function)


def inlined(function: Any) -> Any:
    """Let kernels call a function: its body replaces the call, which leaves the compiler free to vectorise."""
    return numba.njit(inline="always", fastmath=_FAST)(function)


def as_numpy(x: Tensor) -> np.ndarray:
    """A contiguous CPU tensor's own memory, or a contiguous copy; bfloat16 comes as the int16 of its bits.

    Contiguous, because the compiler uses vector instructions only where it knows that neighbours lie side by side.
    """
    x = x.contiguous()
    return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).numpy()


def widen(x: Any) -> Any:
    """In a kernel: a float32 as it is, or the bits of a bfloat16 as the float32 whose upper half they are."""
    raise NotImplementedError("widen works in compiled code only")


@overload(widen, inline="always")
def _widen(x):  # Numba compares this signature with the lambdas'
    if isinstance(x, numba.types.Integer):
        return lambda x: np.int32(np.int32(x) << 16).view(np.float32)
    return lambda x: x
