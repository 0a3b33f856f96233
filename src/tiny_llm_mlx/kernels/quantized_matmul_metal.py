"""Multiplying by 4-bit weights without unpacking the matrix first, in Metal (Day 2.3).

A GPU has thousands of threads, and memory that is fast for neighbors: the 32 threads of a simdgroup should read 32
bytes that lie side by side. So the nibbles stay as Day 2.2 packed them, and a simdgroup computes one output.
"""

from __future__ import annotations

import math

import mlx.core as mx

from ..attention import linear
from ..quantize import QuantizedTensor, dequantize
from .metal import SIMD, metal_kernel

FEW_ROWS = 8
"""The most rows for which the kernel multiplies; each needs a sum of its own in every thread."""
NAMES = ("x", "nibbles", "scales", "minima")
"""What the kernels call their inputs."""


def row_source() -> str:
    """The body of a Metal kernel: one row times the matrix; 32 threads, a simdgroup, compute an output together.

    What it finds: ``x`` float [in]; ``nibbles`` uchar [out, in/G, G/2] as Day 2.2 packs them; ``scales`` and
    ``minima`` half [out, in/G]; and the sizes of nibbles' axes in ``nibbles_shape``. The grid has 32 · out threads.

    What it writes: ``out`` float [out], every element once.
    """
    raise NotImplementedError("Week 2 Day 3 Task 2: One row")


def multiply_row(x: mx.array, weight: QuantizedTensor) -> mx.array:
    """One row times the matrix, by the kernel of :func:`row_source`.

    Args:
        x: float32 [in].
        weight: the matrix [out, in], as Day 2.2 packs it.

    Returns:
        float32 [out].
    """
    raise NotImplementedError("Week 2 Day 3 Task 2: One row")


def rows_source() -> str:
    """The body of a Metal kernel: a few rows times the matrix; each weight is unpacked once, for all the rows.

    What it finds: as :func:`row_source`, but ``x`` is float [rows, in]; ``x_shape`` has its sizes, and ``FEW`` is a
    constant, the most rows that there are.

    What it writes: ``out`` float [rows, out], every element once.
    """
    raise NotImplementedError("Week 2 Day 3 Task 3: A few rows")


def multiply_rows(x: mx.array, weight: QuantizedTensor) -> mx.array:
    """A few rows times the matrix, by the kernel of :func:`rows_source`.

    Args:
        x: float32 [rows, in], 1 to :data:`FEW_ROWS` rows.
        weight: the matrix [out, in], as Day 2.2 packs it.

    Returns:
        float32 [rows, out].
    """
    raise NotImplementedError("Week 2 Day 3 Task 3: A few rows")


class MetalMatmul:
    """Multiply by a quantized matrix with the kernels, or, for many rows, with MLX's matrix product."""

    def __init__(self, weight: QuantizedTensor) -> None:
        """Hold the matrix, in 4 bits."""
        self.weight = weight

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] · Wᵀ → [..., out], in the dtype of ``x``, computed in float32.

        One row goes to :func:`multiply_row`, up to :data:`FEW_ROWS` to :func:`multiply_rows`. For more, and for none,
        the matrix is dequantized and multiplied.
        """
        raise NotImplementedError("Week 2 Day 3 Task 4: Many rows")
