"""A tile of keys and values out of pages in bfloat16, as registers want it (Day 4.7)."""

from __future__ import annotations

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.tiles import transpose_bfloats
from tiny_llm.fast.vectors import fetch, load_bfloats, store_floats

TILE = 64
"""Keys of a tile: a multiple of 32. The tiles of a sequence begin at its first key."""


@exact_inlined
def find(table, shape, head, start, stop, starts):
    """Where the numbers of a head begin for each token of a tile: elements of all pages.

    Args:
        table: int32, the pages of the sequence.
        shape: [N, P, Hkv, D] of the pages.
        starts: int64 [TILE]; overwritten. Behind the last token it goes on with the last one's.
    """
    raise NotImplementedError("Week 4 Day 7 Task 5: Attention in tiles")


@exact_kernel
def fetch_tile(keys, values, table, head, start, stop):
    """Begin to bring a tile from memory, which is used only after another one."""
    P, Hkv, D = keys.shape[1], keys.shape[2], keys.shape[3]
    for position in range(start, stop):
        at = ((table[position // P] * P + position % P) * Hkv + head) * D
        for i in range(0, D, 32):  # a line of the cache
            fetch(keys, at + i)
            fetch(values, at + i)


@exact_inlined
def load_keys(pages, starts, count, D, tile):
    """Keys of a head, 16 of them side by side.

    Args:
        pages: all pages of a layer, bits of bfloat16, uint16.
        starts: from :func:`find`.
        tile: float32 [TILE/16, D, 16]; overwritten.
    """
    raise NotImplementedError("Week 4 Day 7 Task 5: Attention in tiles")


@exact_inlined
def load_values(pages, starts, count, D, tile):
    """Values of a head, float32 [TILE, D]."""
    raise NotImplementedError("Week 4 Day 7 Task 5: Attention in tiles")
