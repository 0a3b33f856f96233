"""Projections in float32 or bfloat16 whose weights are packed once for oneDNN (Day 4.7, given code).

oneDNN is Intel's library of such operations, which torch brings along. Its kernels read weights in an order of their
own: torch's `linear` has them brought into it again and again, or reads them as they are, which is slower.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from tiny_llm.attention import linear

LEAST = 2
"""Rows that are multiplied at least: for one row oneDNN has other kernels, which add up in another order."""
BLOCK = 32
"""Rows of each call where the number of rows decides in which order AMX adds up: calls of one size go one way."""


class Packed:
    """A projection in one dtype, float32 or bfloat16.

    A row's result has the same bits whatever other rows come with it, as far as oneDNN takes one way for all numbers
    of rows. Where this was tried (x86 with AVX-512, one to sixteen threads) it does so for two rows and more. A row
    that comes alone gets an empty one beside it; that takes no longer, as the time goes into reading the weights.
    With AMX, which multiplies bfloat16 in tiles, it does not: there all calls have ``BLOCK`` rows, filled up with
    empty ones. Without oneDNN torch's `linear` computes, and promises nothing of the kind.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        """Pack the weights; the given ones aren't needed any more.

        Args:
            weight: [N, K], in any float dtype. bias: [N], or None.
            dtype: torch.float32 or torch.bfloat16.
        """
        self.outputs, self.width = weight.shape
        self.dtype = dtype
        self.bias = None if bias is None else bias.to(dtype)
        plain = weight.to(dtype).contiguous()
        self.onednn = onednn_takes(dtype)
        self.block = BLOCK if self.onednn and dtype == torch.bfloat16 and has_amx() else None
        self.weight = torch.ops.mkldnn._reorder_linear_weight(plain) if self.onednn else plain

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] → [T, N], both in the dtype of the weights and in one piece."""
        if self.block is not None:
            pieces = self._padded(x, -len(x) % self.block).split(self.block)
            return torch.cat([self._multiply(piece) for piece in pieces])[: len(x)]
        return self._multiply(self._padded(x, max(0, LEAST - len(x))))[: len(x)]

    def _padded(self, x: Tensor, rows: int) -> Tensor:
        """With so many empty rows at its end."""
        return torch.cat((x, x.new_zeros(rows, self.width))) if rows else x

    def _multiply(self, x: Tensor) -> Tensor:
        if not self.onednn:
            return linear(x, self.weight, self.bias)
        result: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return result


@cache
def onednn_takes(dtype: torch.dtype) -> bool:
    """Whether this torch multiplies in a dtype by oneDNN here, with weights that are packed."""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    if not torch.backends.mkldnn.is_available() or not all(hasattr(torch.ops.mkldnn, name) for name in names):
        return False
    if dtype == torch.bfloat16:
        supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
        return supported is not None and bool(supported())
    return dtype == torch.float32


def has_amx() -> bool:
    """Whether this processor multiplies tiles of bfloat16, and this torch can say so."""
    asked = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return asked is not None and bool(asked())
