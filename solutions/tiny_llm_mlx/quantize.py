"""4-bit weights (Day 2.2).

A row of a weight matrix is cut into groups of G neighbors. Each group keeps its smallest value (the minimum), a step
(the scale), and for each weight a code from 0 to 15: how many steps it lies above the minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from .attention import linear
from .layers import Projection

LEVELS = 16
"""The number of values that 4 bits can hold."""


@dataclass(frozen=True)
class QuantizedTensor:
    """A weight matrix [out, in] in 4 bits per weight, in groups of G along the inner axis.

    GGUF files store their type Q4_1 in the same way, one group of 32 after another.
    """

    nibbles: mx.array  # uint8 [out, in/G, G/2]; see pack_nibbles for which code lies where
    scales: mx.array  # float16 [out, in/G]
    minima: mx.array  # float16 [out, in/G]

    @property
    def group_size(self) -> int:
        """G: the number of weights that share a scale and a minimum."""
        return 2 * self.nibbles.shape[2]

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in) of the matrix that is stored here."""
        return self.nibbles.shape[0], self.nibbles.shape[1] * self.group_size

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the matrix takes."""
        return self.nibbles.nbytes + self.scales.nbytes + self.minima.nbytes


def pack_nibbles(codes: mx.array) -> mx.array:
    """Put two codes into each byte.

    Byte j holds code j in its low four bits and code j + G/2 in its high four, as GGUF's Q4_1 has it: one half of
    the group in the low nibbles, the other in the high ones.

    Args:
        codes: uint8 [..., G], each 0 … 15; G is even.

    Returns:
        uint8 [..., G/2].
    """
    low, high = mx.split(codes, 2, axis=-1)
    return low | (high << 4)


def unpack_nibbles(nibbles: mx.array) -> mx.array:
    """Undo :func:`pack_nibbles`: uint8 [..., G/2] → uint8 [..., G]."""
    return mx.concatenate([nibbles & 15, nibbles >> 4], axis=-1)


def quantize(weight: mx.array, group_size: int = 32) -> QuantizedTensor:
    """Round a weight matrix to 16 levels per group.

    The levels go evenly from the group's smallest to its largest weight. The scale and the minimum are rounded to
    float16 first and the codes computed from the rounded ones, so that each weight gets the level nearest to it
    among those that will be read back. Where the rounded scale is 0, because all weights of a group are equal or
    nearly so, the codes are 0 too.

    Args:
        weight: [out, in], any float dtype; computed in float32.
        group_size: G, a positive multiple of 4 that divides ``in``.

    Raises:
        ValueError: ``group_size`` isn't a positive multiple of 4, or doesn't divide ``in``.
    """
    rows, width = weight.shape
    if group_size < 4 or group_size % 4 or width % group_size:
        raise ValueError(
            f"rows of {width} can't be cut into groups of {group_size}: choose a multiple of 4 that divides {width}"
        )
    groups = weight.astype(mx.float32).reshape(rows, width // group_size, group_size)
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    scales = ((high - low) / (LEVELS - 1)).astype(mx.float16)
    minima = low.astype(mx.float16)
    # A weight divided by infinity gets code 0.
    steps = mx.where(scales == 0, math.inf, scales.astype(mx.float32))
    codes = mx.round((groups - minima.astype(mx.float32)[..., None]) / steps[..., None])
    return QuantizedTensor(pack_nibbles(mx.clip(codes, 0, LEVELS - 1).astype(mx.uint8)), scales, minima)


def dequantize(weight: QuantizedTensor, dtype: mx.Dtype = mx.float32) -> mx.array:
    """The matrix [out, in] that is read back: code · scale + minimum, computed in float32.

    Args:
        weight: a matrix from :func:`quantize`, or from a file.
        dtype: the dtype of the result, to which it is rounded once, at the end.
    """
    values = unpack_nibbles(weight.nibbles).astype(mx.float32)
    values = values * weight.scales.astype(mx.float32)[..., None]
    values = values + weight.minima.astype(mx.float32)[..., None]
    return values.reshape(weight.shape).astype(dtype)


class DequantizedMatmul:
    """Multiply by a quantized matrix the plain way: dequantize all of it, multiply, and forget the copy."""

    def __init__(self, weight: QuantizedTensor) -> None:
        """Hold the matrix, in 4 bits."""
        self.weight = weight

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] · Wᵀ → [..., out], in the dtype of ``x``."""
        return linear(x, dequantize(self.weight, x.dtype))


Matmul = Callable[[QuantizedTensor], Projection]
"""A backend that multiplies by quantized matrices: from a matrix it makes a function [..., in] → [..., out]."""


class QuantizedLinear:
    """A linear layer with 4-bit weights, used in place of :class:`tiny_llm.layers.Linear`."""

    def __init__(
        self, weight: QuantizedTensor, bias: mx.array | None = None, matmul: Matmul = DequantizedMatmul
    ) -> None:
        """Prepare the multiplication.

        Args:
            weight: [out, in].
            bias: [out] in the dtype of the inputs, or None.
            matmul: the backend that multiplies; it may keep the weight in a form of its own.
        """
        self.multiply = matmul(weight)
        self.bias = bias

    def __call__(self, x: mx.array) -> mx.array:
        """[..., in] → [..., out], in the dtype of ``x``. What the backend returns is only read: it may keep it."""
        y = self.multiply(x)
        return y if self.bias is None else y + self.bias
