"""Multiplying by 4-bit weights without unpacking the matrix first (Day 2.3).

The kernels are fast because of how the nibbles lie: neighbors in memory belong to neighboring outputs, so that one
vector instruction adds one input to as many outputs as a register holds (4, 8 or 16).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numba import prange
from torch import Tensor

from tiny_llm.kernels.compiling import as_numpy, inlined, kernel
from tiny_llm.quantize import QuantizedTensor, unpack_nibbles

BLOCK = 64
"""Outputs that a thread works on at a time; their sums fit a few registers. The compiler needs a constant here."""
HALF = BLOCK // 2


@dataclass(frozen=True)
class PackedWeight:
    """A quantized matrix [out, in] in blocks of 64 outputs; the last block is filled up with zeros."""

    nibbles: np.ndarray  # uint8 [blocks, in, 32]: byte j of a row has output j low and output j + 32 high
    scales: np.ndarray  # float32 [blocks, in/G, 64]
    minima: np.ndarray  # float32 [blocks, in/G, 64]
    outputs: int  # out, without the filling


def pack_outputs(weight: QuantizedTensor) -> PackedWeight:
    """Lay a quantized matrix out for the kernels: outputs side by side instead of inputs."""
    outputs, width = weight.shape
    codes = _in_blocks(unpack_nibbles(weight.nibbles).reshape(outputs, width))
    nibbles = codes[:, :, :HALF] | (codes[:, :, HALF:] << 4)
    scales, minima = _in_blocks(weight.scales.float()), _in_blocks(weight.minima.float())
    return PackedWeight(as_numpy(nibbles), as_numpy(scales), as_numpy(minima), outputs)


def _in_blocks(rows: Tensor) -> Tensor:
    """[out, n] → [blocks, n, 64], with zeros for the outputs that the last block lacks."""
    outputs, width = rows.shape
    filled = torch.nn.functional.pad(rows, (0, 0, 0, -outputs % BLOCK))
    return filled.reshape(-1, BLOCK, width).transpose(1, 2)


@inlined
def low(byte: int) -> np.float32:
    """The code in the low four bits, as float32.

    Through int32: Numba's integers have 64 bits by default, and a register holds half as many of those.
    """
    return np.float32(np.int32(byte & 15))


@inlined
def high(byte: int) -> np.float32:
    """The code in the high four bits, as float32."""
    return np.float32(np.int32(byte >> 4))


@kernel
def multiply_row(
    x: np.ndarray, nibbles: np.ndarray, scales: np.ndarray, minima: np.ndarray, out: np.ndarray
) -> None:
    """One row times the matrix; each thread takes a block of 64 outputs.

    Within a group, Σ x·w = scale · Σ x·code + minimum · Σ x: the inner loop needs neither scale nor minimum.

    Args:
        x: float32 [in].
        nibbles: uint8 [blocks, in, 32]; scales and minima: float32 [blocks, in/G, 64] (see :class:`PackedWeight`).
        out: float32 [blocks · 64]; overwritten.
    """
    groups = scales.shape[1]
    size = len(x) // groups
    for block in prange(len(nibbles)):
        total = np.zeros(BLOCK, np.float32)
        partial = np.empty(BLOCK, np.float32)
        for group in range(groups):
            partial[:] = 0
            x_sum = np.float32(0)
            for k in range(group * size, (group + 1) * size, 4):
                # Four inputs at a time: `partial` is then loaded and stored once instead of four times.
                x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
                x_sum += x0 + x1 + x2 + x3
                for j in range(HALF):
                    b0, b1 = nibbles[block, k, j], nibbles[block, k + 1, j]
                    b2, b3 = nibbles[block, k + 2, j], nibbles[block, k + 3, j]
                    partial[j] += x0 * low(b0) + x1 * low(b1) + x2 * low(b2) + x3 * low(b3)
                    partial[HALF + j] += x0 * high(b0) + x1 * high(b1) + x2 * high(b2) + x3 * high(b3)
            for j in range(BLOCK):
                total[j] += scales[block, group, j] * partial[j] + minima[block, group, j] * x_sum
        out[block * BLOCK : (block + 1) * BLOCK] = total


@kernel
def multiply_rows(
    x: np.ndarray, nibbles: np.ndarray, scales: np.ndarray, minima: np.ndarray, out: np.ndarray
) -> None:
    """A few rows times the matrix: each tile of G inputs by 64 outputs is unpacked once, for all the rows.

    Args:
        x: float32 [rows, in].
        nibbles: uint8 [blocks, in, 32]; scales and minima: float32 [blocks, in/G, 64].
        out: float32 [rows, blocks · 64]; overwritten.
    """
    groups = scales.shape[1]
    size = x.shape[1] // groups
    for block in prange(len(nibbles)):
        total = np.zeros((len(x), BLOCK), np.float32)
        tile = np.empty((size, BLOCK), np.float32)
        for group in range(groups):
            first = group * size
            unpack_tile(
                nibbles[block, first : first + size], scales[block, group], minima[block, group], tile
            )
            for row in range(len(x)):
                for k in range(size):
                    for j in range(BLOCK):
                        total[row, j] += x[row, first + k] * tile[k, j]
        out[:, block * BLOCK : (block + 1) * BLOCK] = total


@inlined
def unpack_tile(nibbles: np.ndarray, scale: np.ndarray, minimum: np.ndarray, tile: np.ndarray) -> None:
    """One group of one block as floats.

    Args:
        nibbles: uint8 [G, 32].
        scale: float32 [64]; minimum likewise.
        tile: float32 [G, 64]; overwritten.
    """
    for k in range(len(nibbles)):
        for j in range(HALF):
            byte = nibbles[k, j]
            tile[k, j] = low(byte) * scale[j] + minimum[j]
            tile[k, HALF + j] = high(byte) * scale[HALF + j] + minimum[HALF + j]


@kernel
def unpack_all(nibbles: np.ndarray, scales: np.ndarray, minima: np.ndarray, out: np.ndarray) -> None:
    """The whole matrix as floats, for many rows, which a BLAS multiplies faster than our kernels do.

    Args:
        nibbles: uint8 [blocks, in, 32]; scales and minima: float32 [blocks, in/G, 64].
        out: float32 [blocks, in, 64]; overwritten.
    """
    groups = scales.shape[1]
    size = nibbles.shape[1] // groups
    for block in prange(len(nibbles)):
        for group in range(groups):
            first = group * size
            unpack_tile(
                nibbles[block, first : first + size],
                scales[block, group],
                minima[block, group],
                out[block, first : first + size],
            )


FEW_ROWS = 16
"""The most rows for `multiply_rows`, which is well ahead there; beyond some 30, unpacking for a BLAS is faster."""


class KernelMatmul:
    """Multiply by a quantized matrix with the kernels of this file; an alternative to `DequantizedMatmul`."""

    def __init__(self, weight: QuantizedTensor) -> None:
        """Lay the matrix out for the kernels; ``weight`` itself is not kept.

        Raises:
            ValueError: the matrix isn't on the CPU.
        """
        if weight.device.type != "cpu":
            raise ValueError(f"these kernels run on the CPU; the weight is on {weight.device}")
        self.packed = pack_outputs(weight)

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., in] · Wᵀ → [..., out], in the dtype of ``x``; computed in float32. There may be no rows at all."""
        rows = x.float().reshape(-1, x.shape[-1])
        y = self._by_blas(rows) if len(rows) > FEW_ROWS else self._by_kernel(rows)
        return y[:, : self.packed.outputs].reshape(*x.shape[:-1], self.packed.outputs).to(x.dtype)

    def _by_kernel(self, rows: Tensor) -> Tensor:
        """[rows, in] → [rows, blocks · 64]."""
        packed = self.packed
        x, out = as_numpy(rows), np.empty((len(rows), len(packed.nibbles) * BLOCK), np.float32)
        if len(rows) == 1:
            multiply_row(x[0], packed.nibbles, packed.scales, packed.minima, out[0])
        else:
            multiply_rows(x, packed.nibbles, packed.scales, packed.minima, out)
        return torch.from_numpy(out)

    def _by_blas(self, rows: Tensor) -> Tensor:
        """[rows, in] → [rows, blocks · 64]."""
        packed = self.packed
        blocks, width, _ = packed.nibbles.shape
        matrix = torch.empty(blocks, width, BLOCK)
        unpack_all(packed.nibbles, packed.scales, packed.minima, matrix.numpy())
        return torch.cat(tuple(rows @ matrix), dim=1)
