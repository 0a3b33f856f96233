"""Triton: compiled for a GPU, or interpreted on the CPU (given code).

Triton decides between the two when it is imported, by the environment variable TRITON_INTERPRET.
"""

from __future__ import annotations

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# A product and a sum in one instruction: Triton's default, but it warns that this will change.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("Triton exists for Linux only; choose another way to attend on this system") from error

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
"""Whether kernels run in the interpreter, on the CPU."""


@triton.jit
def dot(a, b):
    """The matrix product of two tiles, summed in float32.

    float32 is multiplied as it is, not in the shorter format of the matrix units of a GPU. The interpreter keeps
    bfloat16 as integers and can't multiply them; there it is widened first.

    Args:
        a: [m, k], float32 or bfloat16.
        b: [k, n], of the same dtype.

    Returns:
        float32 [m, n].
    """
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32))
    return tl.dot(a, b, input_precision="ieee")


__all__ = ["INTERPRETED", "dot", "tl", "triton"]
