"""Storage for the keys and values of all requests, in pages of equal size (Day 3.1)."""

from __future__ import annotations

import mlx.core as mx

from tiny_llm.config import ModelConfig


class KvPool:
    """Keys and values of every layer: of each layer two arrays [N, P, Hkv, D], N pages of P tokens each.

    The *place* of a token in a layer is page · P + offset: the pages' tokens, counted from the first page on.

    Each layer has arrays of its own. MLX writes into an array by making a new one, and takes the memory of the old
    one for it if no other array needs that: so a write costs what is written, not what is there.
    """

    def __init__(
        self,
        config: ModelConfig,
        num_pages: int,
        page_size: int,
        dtype: mx.Dtype = mx.float32,
        device: None = None,
    ) -> None:
        """Take all the memory, once.

        Args:
            config: the model's layers, key-value heads and head size.
            num_pages: N, the null page included.
            page_size: P, tokens per page.
            dtype: of keys and values.
            device: not used; it is there so that both packages are called alike.
        """
        shape = (num_pages, page_size, config.num_kv_heads, config.head_dim)
        self.num_pages = num_pages
        self.page_size = page_size
        self.keys = [mx.zeros(shape, dtype=dtype) for _ in range(config.num_layers)]
        self.values = [mx.zeros(shape, dtype=dtype) for _ in range(config.num_layers)]
        mx.eval(self.keys, self.values)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return sum(array.nbytes for array in self.keys + self.values)

    def write(self, layer: int, slot_mapping: mx.array, key: mx.array, value: mx.array) -> None:
        """Put the keys and values of T tokens into their places.

        Args:
            layer: the layer that the keys and values belong to.
            slot_mapping: the place of each token, integer [T]; each place at most once.
            key: [T, Hkv, D]; value likewise.
        """
        pages, offsets = slot_mapping // self.page_size, slot_mapping % self.page_size
        self.keys[layer][pages, offsets] = key
        self.values[layer][pages, offsets] = value

    def gather(self, layer: int, places: mx.array) -> tuple[mx.array, mx.array]:
        """Copy the keys and values out of some places.

        Args:
            layer: the layer to read from.
            places: integer [S], in the order wanted.

        Returns:
            keys and values [S, Hkv, D].
        """
        return self.keys[layer].flatten(0, 1)[places], self.values[layer].flatten(0, 1)[places]
