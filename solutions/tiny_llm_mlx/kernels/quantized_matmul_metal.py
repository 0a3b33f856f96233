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
    return """
    uint output = thread_position_in_grid.x / 32;
    uint lane = thread_index_in_simdgroup;
    uint groups = nibbles_shape[1];
    uint half_size = nibbles_shape[2];
    uint bytes = groups * half_size;

    float total = 0;
    for (uint k = lane; k < bytes; k += 32) {
        uint group = k / half_size;
        uint low = group * 2 * half_size + k % half_size;   // the input of the byte's low code
        uchar codes = nibbles[output * bytes + k];
        float scale = scales[output * groups + group];
        float minimum = minima[output * groups + group];
        total += x[low] * (scale * (codes & 15) + minimum);
        total += x[low + half_size] * (scale * (codes >> 4) + minimum);
    }
    total = simd_sum(total);
    if (lane == 0) {
        out[output] = total;
    }
    """


def multiply_row(x: mx.array, weight: QuantizedTensor) -> mx.array:
    """One row times the matrix, by the kernel of :func:`row_source`.

    Args:
        x: float32 [in].
        weight: the matrix [out, in], as Day 2.2 packs it.

    Returns:
        float32 [out].
    """
    outputs = weight.shape[0]
    kernel = metal_kernel("multiply_row", NAMES, ("out",), row_source())
    (out,) = kernel(
        inputs=[x, weight.nibbles, weight.scales, weight.minima],
        grid=(SIMD * outputs, 1, 1),
        threadgroup=(SIMD, 1, 1),
        output_shapes=[(outputs,)],
        output_dtypes=[mx.float32],
    )
    return out


def rows_source() -> str:
    """The body of a Metal kernel: a few rows times the matrix; each weight is unpacked once, for all the rows.

    What it finds: as :func:`row_source`, but ``x`` is float [rows, in]; ``x_shape`` has its sizes, and ``FEW`` is a
    constant, the most rows that there are.

    What it writes: ``out`` float [rows, out], every element once.
    """
    return """
    uint output = thread_position_in_grid.x / 32;
    uint lane = thread_index_in_simdgroup;
    uint rows = x_shape[0];
    uint width = x_shape[1];
    uint outputs = nibbles_shape[0];
    uint groups = nibbles_shape[1];
    uint half_size = nibbles_shape[2];
    uint bytes = groups * half_size;

    float total[FEW];
    for (uint row = 0; row < rows; ++row) {
        total[row] = 0;
    }
    for (uint k = lane; k < bytes; k += 32) {
        uint group = k / half_size;
        uint low = group * 2 * half_size + k % half_size;
        uchar codes = nibbles[output * bytes + k];
        float scale = scales[output * groups + group];
        float minimum = minima[output * groups + group];
        float first = scale * (codes & 15) + minimum;
        float second = scale * (codes >> 4) + minimum;
        for (uint row = 0; row < rows; ++row) {
            total[row] += x[row * width + low] * first;
            total[row] += x[row * width + low + half_size] * second;
        }
    }
    for (uint row = 0; row < rows; ++row) {
        float sum = simd_sum(total[row]);
        if (lane == 0) {
            out[row * outputs + output] = sum;
        }
    }
    """


def multiply_rows(x: mx.array, weight: QuantizedTensor) -> mx.array:
    """A few rows times the matrix, by the kernel of :func:`rows_source`.

    Args:
        x: float32 [rows, in], 1 to :data:`FEW_ROWS` rows.
        weight: the matrix [out, in], as Day 2.2 packs it.

    Returns:
        float32 [rows, out].
    """
    rows, outputs = x.shape[0], weight.shape[0]
    kernel = metal_kernel("multiply_rows", NAMES, ("out",), rows_source())
    (out,) = kernel(
        inputs=[x, weight.nibbles, weight.scales, weight.minima],
        template=[("FEW", FEW_ROWS)],
        grid=(SIMD * outputs, 1, 1),
        threadgroup=(SIMD, 1, 1),
        output_shapes=[(rows, outputs)],
        output_dtypes=[mx.float32],
    )
    return out


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
        outputs, width = self.weight.shape
        count = math.prod(x.shape[:-1])
        rows = x.astype(mx.float32).reshape(count, width)
        if count == 1:
            y = multiply_row(rows[0], self.weight)
        elif 1 < count <= FEW_ROWS:
            y = multiply_rows(rows, self.weight)
        else:
            y = linear(rows, dequantize(self.weight))
        return y.reshape(*x.shape[:-1], outputs).astype(x.dtype)
