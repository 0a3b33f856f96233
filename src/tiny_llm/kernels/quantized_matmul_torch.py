"""torch's own 4-bit kernel for the CPU (Day 2.3); the choice between it and ours is in matmul_backends.py."""

from __future__ import annotations

import torch
from torch import Tensor

from tiny_llm.kernels.quantized_matmul_cpu import KernelMatmul
from tiny_llm.quantize import QuantizedTensor, unpack_nibbles

GROUP_SIZES = (32, 64, 128, 256)
OUTPUTS_MULTIPLE = 16
INT4_ROWS = 32
"""The most rows for torch's 4-bit kernel; with more rows, unpacking for a BLAS is faster."""


class TorchInt4Matmul:
    """Multiply by a quantized matrix with torch's 4-bit kernel, which computes in bfloat16."""

    def __init__(self, weight: QuantizedTensor) -> None:
        """Lay the matrix out for torch's kernel, and once more for many rows at a time.

        torch reads a code c as (c − 8) · scale + zero; ours is c · scale + minimum, so zero = minimum + 8 · scale,
        computed in float32 and rounded to bfloat16 once.
        """
        raise NotImplementedError("Week 2 Day 3 Task 5: torch's kernel")

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., in] · Wᵀ → [..., out], in the dtype of ``x``; computed in bfloat16 for up to 32 rows.

        There may be no rows at all, and x need not be contiguous, which torch's kernel requires.
        """
        raise NotImplementedError("Week 2 Day 3 Task 5: torch's kernel")
