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

    All of it lies in one array, in the order in which it is read: block after block, and within a block group after
    group, a *record* for each 16 outputs and 32 inputs. Output o of the block and input k of the group, both counted
    from 0, have these bytes of the record:

    - with 8 bits, the code is byte 64 · (k // 4) + 4 · o + k % 4: eight registers, each of which holds four
      neighboring inputs of all 16 outputs, output after output;
    - with 4 bits, the code is half of byte 64 · (k // 8) + 4 · o + k % 4: two such registers, one behind the other in
      the matrix, share 64 bytes; the codes of the first (k % 8 < 4) are the lower halves, those of the second the
      upper halves;
    - behind the codes, from byte 64 · bits on, the scales of the 16 outputs in float16, and then their minima.
    """

    records: np.ndarray  # uint8 [N/16 · K/32 · bytes of a record], see record_bytes
    bias: np.ndarray  # float32 [N], or [0]
    outputs: int  # N, a multiple of 16
    width: int  # K, a multiple of 32
    bits: int


def record_bytes(bits: int) -> int:
    """The size of a record: the codes of 16 outputs and 32 inputs, then 16 scales and 16 minima.

    320 bytes with 4 bits, 576 with 8.
    """
    return LANES * GROUP * bits // 8 + 2 * 2 * LANES


def lay_out(codes: Tensor, scales: Tensor, minima: Tensor, bits: int, bias: Tensor | None = None) -> LaidOut:
    """Put codes, scales and minima where the kernel wants them: in the records of :class:`LaidOut`.

    Args:
        codes: uint8 [N, K], each below 2^bits. N is a multiple of 16, K one of 32.
        scales, minima: [N, K/32], of any float dtype; rounded to float16.
        bits: 4 or 8.
        bias: [N], of any float dtype, or None: then the result's bias has no numbers, [0].
    """
    raise NotImplementedError("Week 4 Day 7 Task 1: Weights laid out")


def lay_out_4_bits(weight: QuantizedTensor, bias: Tensor | None = None) -> LaidOut:
    """The same weights as in Day 2.2's groups of 32, exactly: the same codes, scales and minima.

    Args:
        weight: a matrix [N, K] in groups of 32. N is a multiple of 16.
        bias: [N], of any float dtype, or None.
    """
    raise NotImplementedError("Week 4 Day 7 Task 1: Weights laid out")


def lay_out_8_bits(weight: Tensor) -> LaidOut:
    """A matrix of floats, rounded to 255 levels per group of 32, evenly around 0.

    The scale of a group is its largest magnitude / 127, rounded to float16. The weights are counted in steps of this
    rounded scale: weight / scale in float32, rounded to the nearest whole number, of two equally near to the even
    one, and kept within −127 … 127, which small scales, of few digits in float16, can lead out of. The code is this
    number + 128, so the minimum is −128 · scale. Where the rounded scale is 0, the codes are 128.

    Args:
        weight: [N, K], of any float dtype; computed in float32. N is a multiple of 16, K one of 32.
    """
    raise NotImplementedError("Week 4 Day 7 Task 1: Weights laid out")
