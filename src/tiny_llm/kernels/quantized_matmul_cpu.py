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
    raise NotImplementedError("Week 2 Day 3 Task 1: Outputs side by side")


def _in_blocks(rows: Tensor) -> Tensor:
    """[out, n] → [blocks, n, 64], with zeros for the outputs that the last block lacks."""
    raise NotImplementedError("Week 2 Day 3 Task 1: Outputs side by side")


@inlined
def low(byte: int) -> np.float32:
    """The code in the low four bits, as float32.

    Through int32: Numba's integers have 64 bits by default, and a register holds half as many of those.
    """
    raise NotImplementedError("Week 2 Day 3 Task 2: One row")


@inlined
def high(byte: int) -> np.float32:
    """The code in the high four bits, as float32."""
    raise NotImplementedError("Week 2 Day 3 Task 2: One row")


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
    raise NotImplementedError("Week 2 Day 3 Task 2: One row")


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
    raise NotImplementedError("Week 2 Day 3 Task 3: A few rows")


@inlined
def unpack_tile(nibbles: np.ndarray, scale: np.ndarray, minimum: np.ndarray, tile: np.ndarray) -> None:
    """One group of one block as floats.

    Args:
        nibbles: uint8 [G, 32].
        scale: float32 [64]; minimum likewise.
        tile: float32 [G, 64]; overwritten.
    """
    raise NotImplementedError("Week 2 Day 3 Task 3: A few rows")


@kernel
def unpack_all(nibbles: np.ndarray, scales: np.ndarray, minima: np.ndarray, out: np.ndarray) -> None:
    """The whole matrix as floats, for many rows, which a BLAS multiplies faster than our kernels do.

    Args:
        nibbles: uint8 [blocks, in, 32]; scales and minima: float32 [blocks, in/G, 64].
        out: float32 [blocks, in, 64]; overwritten.
    """
    raise NotImplementedError("Week 2 Day 3 Task 4: Many rows")


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
        raise NotImplementedError("Week 2 Day 3 Task 4: Many rows")

    def _by_kernel(self, rows: Tensor) -> Tensor:
        """[rows, in] → [rows, blocks · 64]."""
        raise NotImplementedError("Week 2 Day 3 Task 4: Many rows")

    def _by_blas(self, rows: Tensor) -> Tensor:
        """[rows, in] → [rows, blocks · 64]."""
        raise NotImplementedError("Week 2 Day 3 Task 4: Many rows")
