"""Weights laid out for registers (Day 4.7): the codes of 16 outputs side by side, four inputs each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tiny_llm.fast.rows8 import GROUP
from tiny_llm.fast.vectors import LANES
from tiny_llm.quantize import QuantizedTensor, unpack_nibbles


class LaidOut(NamedTuple):
    """A matrix [N, K] in codes of 4 or 8 bits, in blocks of 16 outputs: weight = code · scale + minimum.

    All of it lies in one array, in the order in which it is read: for each block and group of 32 inputs a *record* of
    the codes (4 registers of 64 bytes, or 8 with 8 bits), the 16 scales and the 16 minima, in float16.
    """

    records: np.ndarray  # uint8 [N/16 · K/32 · bytes of a record]
    bias: np.ndarray  # float32 [N], or [0]
    outputs: int  # N, a multiple of 16
    width: int  # K, a multiple of 32
    bits: int


def record_bytes(bits: int) -> int:
    """The size of a record: the codes of 16 outputs and 32 inputs, then 16 scales and 16 minima."""
    return LANES * GROUP * bits // 8 + 2 * 2 * LANES


def lay_out(codes: Tensor, scales: Tensor, minima: Tensor, bits: int, bias: Tensor | None = None) -> LaidOut:
    """Put codes, scales and minima where the kernel wants them.

    A register holds four neighboring inputs of 16 outputs. With 4 bits two registers share 64 bytes: the first one's
    codes are the lower halves.

    Args:
        codes: uint8 [N, K].
        scales, minima: [N, K/32].
        bits: 4 or 8.
        bias: [N], or None.
    """
    raise NotImplementedError("Week 4 Day 7 Task 1: Weights laid out")


def lay_out_4_bits(weight: QuantizedTensor, bias: Tensor | None = None) -> LaidOut:
    """The same weights as in Day 2.2's groups of 32, exactly."""
    raise NotImplementedError("Week 4 Day 7 Task 1: Weights laid out")


def lay_out_8_bits(weight: Tensor) -> LaidOut:
    """A matrix of floats [N, K], rounded to 255 levels per group of 32, evenly around 0."""
    raise NotImplementedError("Week 4 Day 7 Task 1: Weights laid out")
