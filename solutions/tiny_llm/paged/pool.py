"""Storage for the keys and values of all requests, in pages of equal size (Day 3.1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from mmap import mmap

import torch
from torch import Tensor

from tiny_llm.config import ModelConfig


class KvPool:
    """Keys and values of every layer: two arrays [num_layers, N, P, Hkv, D], N pages of P tokens each.

    The *place* of a token in a layer is page · P + offset: the pages' tokens, counted from the first page on.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_pages: int,
        page_size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Take all the memory, once: its addresses. On the CPU a part costs memory when it is first written to.

        Args:
            config: the model's layers, key-value heads and head size.
            num_pages: N, the null page included.
            page_size: P, tokens per page.
            dtype: of keys and values.
            device: where the two arrays are.
        """
        shape = (config.num_layers, num_pages, page_size, config.num_kv_heads, config.head_dim)
        self.num_pages = num_pages
        self.page_size = page_size
        self.keys = _zeros(shape, dtype, torch.device(device))
        self.values = _zeros(shape, dtype, torch.device(device))

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def write(self, layer: int, slot_mapping: Tensor, key: Tensor, value: Tensor) -> None:
        """Put the keys and values of T tokens into their places.

        Args:
            layer: the layer that the keys and values belong to.
            slot_mapping: the place of each token, integer [T]; each place at most once.
            key: [T, Hkv, D]; value likewise.
        """
        self.keys[layer].flatten(0, 1)[slot_mapping] = key
        self.values[layer].flatten(0, 1)[slot_mapping] = value

    def gather(self, layer: int, places: Tensor) -> tuple[Tensor, Tensor]:
        """Copy the keys and values out of some places.

        Args:
            layer: the layer to read from.
            places: integer [S], in the order wanted.

        Returns:
            keys and values [S, Hkv, D].
        """
        return self.keys[layer].flatten(0, 1)[places], self.values[layer].flatten(0, 1)[places]


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    count = math.prod(shape)
    if device.type != "cpu" or count == 0:
        return torch.zeros(shape, dtype=dtype, device=device)
    # torch.zeros writes the zeros. The system gives memory that is zero, and only when a part of it is used.
    return torch.frombuffer(mmap(-1, count * dtype.itemsize), dtype=dtype).reshape(shape)
