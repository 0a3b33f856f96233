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
    outputs, width = codes.shape
    blocks, groups = outputs // LANES, width // GROUP
    # block, output, group, register, input → block, group, register, output, input
    laid = codes.reshape(blocks, LANES, groups, GROUP // 4, 4).permute(0, 2, 3, 1, 4)
    if bits == 4:
        laid = laid[:, :, 0::2] | (laid[:, :, 1::2] << 4)

    def halves(numbers: Tensor) -> Tensor:
        by_group = numbers.reshape(blocks, LANES, groups).transpose(1, 2)
        return by_group.half().contiguous().view(torch.uint8)

    records = torch.cat((laid.reshape(blocks, groups, -1), halves(scales), halves(minima)), dim=-1)
    return LaidOut(
        records.reshape(-1).numpy(),
        np.zeros(0, np.float32) if bias is None else bias.float().numpy(),
        outputs,
        width,
        bits,
    )


def lay_out_4_bits(weight: QuantizedTensor, bias: Tensor | None = None) -> LaidOut:
    """The same weights as in Day 2.2's groups of 32, exactly."""
    codes = unpack_nibbles(weight.nibbles).reshape(weight.shape)
    return lay_out(codes, weight.scales, weight.minima, 4, bias)


def lay_out_8_bits(weight: Tensor) -> LaidOut:
    """A matrix of floats [N, K], rounded to 255 levels per group of 32, evenly around 0."""
    outputs, width = weight.shape
    groups = weight.float().reshape(outputs, width // GROUP, GROUP)
    scales = (groups.abs().amax(dim=-1) / 127).half()
    steps = torch.where(scales == 0, torch.inf, scales.float())
    codes = (groups / steps[..., None]).round().clamp(-127, 127) + 128
    return lay_out(codes.to(torch.uint8).reshape(outputs, width), scales, -128 * scales.float(), 8)
