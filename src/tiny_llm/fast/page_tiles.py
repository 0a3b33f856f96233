"""A tile of keys and values out of pages in bfloat16, as registers want it (Day 4.7)."""

from __future__ import annotations

from tiny_llm.fast.compiling import exact_inlined, exact_kernel
from tiny_llm.fast.tiles import transpose_bfloats
from tiny_llm.fast.vectors import fetch, load_bfloats, store_floats

TILE = 64
"""Keys of a tile: a multiple of 32. The tiles of a sequence begin at its first key."""


@exact_inlined
def find(table, shape, head, start, stop, starts):
    """Where the D numbers of a head begin for each token of a tile: indices of elements of all pages.

    The token at a position lies on page ``table[position // P]``, in place ``position % P``.

    Args:
        table: int32, the pages of the sequence; what stands behind the page of position ``stop`` − 1 isn't read.
        shape: N, P, Hkv, D of the pages.
        head: which of the Hkv.
        start, stop: positions of the tile's tokens: ``start`` … ``stop`` − 1, from 1 to TILE of them.
        starts: int64 [TILE]; entry i becomes that of position ``start`` + i. Up to a multiple of 16 the last token's
            is repeated, because :func:`load_keys` always takes 16 tokens: it may read only where a token lies. The
            entries behind stay as they are.
    """
    raise NotImplementedError("Week 4 Day 7 Task 5: Attention in tiles")


@exact_kernel
def fetch_tile(keys, values, table, head, start, stop):
    """Begin to bring a tile from memory, which is used only after another one.

    Args:
        keys, values: [N, P, Hkv, D].
        table, head, start, stop: as for :func:`find`; there may be no token.
    """
    P, Hkv, D = keys.shape[1], keys.shape[2], keys.shape[3]
    for position in range(start, stop):
        at = ((table[position // P] * P + position % P) * Hkv + head) * D
        for i in range(0, D, 32):  # a line of the cache
            fetch(keys, at + i)
            fetch(values, at + i)


@exact_inlined
def load_keys(pages, starts, count, D, tile):
    """Keys of a head, widened to float32, 16 of them side by side: ``transpose_bfloats`` does 32 numbers of 16 keys.

    Args:
        pages: uint16 [N·P·Hkv·D], bits of bfloat16, all pages of a layer; only read.
        starts: int64 [TILE], from :func:`find`.
        count: keys of the tile, from 1 to TILE.
        D: numbers of a head, a multiple of 32.
        tile: float32 [TILE/16 · D · 16]: number i of key t becomes element (t // 16 · D + i) · 16 + t % 16. The
            blocks of 16 keys that have one of the ``count`` are written whole, also what ``starts`` has repeated;
            the blocks behind them stay as they are.
    """
    raise NotImplementedError("Week 4 Day 7 Task 5: Attention in tiles")


@exact_inlined
def load_values(pages, starts, count, D, tile):
    """Values of a head, widened to float32, one token behind the other.

    Args:
        pages, starts, count, D: as for :func:`load_keys`.
        tile: float32 [TILE·D]: number i of token t becomes element t · D + i. What lies behind the ``count`` tokens
            stays as it is.
    """
    raise NotImplementedError("Week 4 Day 7 Task 5: Attention in tiles")
