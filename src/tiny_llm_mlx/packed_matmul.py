"""4-bit weights in MLX's own packed form, multiplied by MLX's own kernel (given code; Day 2.2 explains it).

MLX reads a code c as c · scale + bias, as we do: its bias is our minimum. Only the order of the codes is another one:
neighbors of a row lie next to each other, eight in a word of 32 bits, the first in the lowest four.
"""

from __future__ import annotations

import mlx.core as mx

from .quantize import QuantizedTensor, unpack_nibbles

GROUP_SIZES = (32, 64, 128)
"""The group sizes that MLX's kernel takes."""


def pack_words(nibbles: mx.array) -> mx.array:
    """Put the codes of a matrix into the order in which MLX reads them.

    Args:
        nibbles: uint8 [out, in/G, G/2], as :class:`QuantizedTensor` has them; G is a multiple of 8.

    Returns:
        uint32 [out, in/8].
    """
    pairs = unpack_nibbles(nibbles).reshape(nibbles.shape[0], -1, 2)
    return (pairs[..., 0] | (pairs[..., 1] << 4)).view(mx.uint32)


class PackedMatmul:
    """Multiply by a quantized matrix without dequantizing it: MLX's kernel reads the codes themselves."""

    def __init__(self, weight: QuantizedTensor) -> None:
        """Pack the matrix anew, once; it takes as much memory as before.

        Raises:
            ValueError: MLX's kernel doesn't take the group size.
        """
        if weight.group_size not in GROUP_SIZES:
            raise ValueError(
                f"MLX's kernel takes groups of 32, 64 or 128 weights, not of {weight.group_size}; choose plain"
            )
        self.words = pack_words(weight.nibbles)
        self.scales = weight.scales
        self.minima = weight.minima
        self.group_size = weight.group_size
        # Computed now, so that the codes, a byte each, are in memory for one matrix at a time.
        mx.eval(self.words)

    def __call__(self, x: mx.array) -> mx.array:
        """x [..., in] · Wᵀ → [..., out], in the dtype of ``x``. Computed in float32, rounded once."""
        # MLX's kernel for the CPU is many times slower where inputs and scales are both float16 or bfloat16.
        y = mx.quantized_matmul(
            x.astype(mx.float32),
            self.words,
            self.scales,
            self.minima,
            transpose=True,
            group_size=self.group_size,
            bits=4,
        )
        return y.astype(x.dtype)
