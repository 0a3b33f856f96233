"""Storage for the keys and values of all requests, in blocks of equal size (Day 3.1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tiny_llm.config import ModelConfig


class KvPool:
    """Keys and values of every layer: two arrays [num_layers, N, P, Hkv, D], N blocks of P tokens each.

    A token's *slot* is its place in a layer with the blocks put one behind the other: block · P + place in the block.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """Take the memory; all of it, once.

        Args:
            config: the model's layers, key-value heads and head size.
            num_blocks: N, the null block included.
            block_size: P, tokens a block.
            dtype: of keys and values.
            device: where they are.
        """
        shape = (config.num_layers, num_blocks, block_size, config.num_kv_heads, config.head_dim)
        self.block_size = block_size
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return self.keys.nbytes + self.values.nbytes

    def write(self, layer: int, slot_mapping: Tensor, key: Tensor, value: Tensor) -> None:
        """Put T tokens into their slots.

        Args:
            layer: whose keys and values they are.
            slot_mapping: the slot of each token, integer [T], no slot twice.
            key: [T, Hkv, D]; value likewise.
        """
        raise NotImplementedError("Week 3 Day 1 Task 3: The pool")

    def gather(self, layer: int, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Copies of the keys and values in some slots.

        Args:
            layer: whose keys and values.
            slots: integer [S], in the order wanted.

        Returns:
            keys and values [S, Hkv, D].
        """
        raise NotImplementedError("Week 3 Day 1 Task 3: The pool")


def blocks_for(tokens: int, block_size: int) -> int:
    """How many blocks hold so many tokens: the last one may be part full."""
    raise NotImplementedError("Week 3 Day 1 Task 3: The pool")


def slots_of(blocks: Sequence[int], start: int, stop: int, block_size: int) -> list[int]:
    """The slots of the tokens at positions ``start`` … ``stop`` − 1 of a sequence.

    Args:
        blocks: the sequence's blocks, in order: position p stands in block p // P, at place p % P.
        start: the first position.
        stop: the one after the last; there are blocks for all of them.
        block_size: P.
    """
    raise NotImplementedError("Week 3 Day 1 Task 3: The pool")
