"""Attention in tiles with the online softmax (Day 2.4): exact, and never an L × S array.

Sources: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; Dao et al. 2022, "FlashAttention";
and for the order, with queries outside and one division at the end, Dao 2023, "FlashAttention-2".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx

QUERY_TILE = 128
KEY_TILE = 256


@dataclass
class OnlineSoftmax:
    """The state of softmax(scores) · values after some of the keys, with one row per query."""

    out: mx.array  # float32 [..., rows, D]: the sum of exp(score − peak) · value
    total: mx.array  # float32 [..., rows, 1]: the sum of exp(score − peak)
    peak: mx.array  # float32 [..., rows, 1]: the highest score so far; −inf before the first

    @classmethod
    def empty(cls, rows: mx.array) -> OnlineSoftmax:
        """The state before the first key, for queries ``rows`` [..., rows, D]."""
        column = mx.zeros((*rows.shape[:-1], 1), dtype=mx.float32)
        return cls(mx.zeros(rows.shape, dtype=mx.float32), column, column - math.inf)

    def fold(self, scores: mx.array, values: mx.array) -> None:
        """Take in one tile of keys, which is only read; the order of the tiles makes no difference.

        Args:
            scores: float32 [..., rows, keys]; −inf hides a key.
            values: [..., keys, D].
        """
        raise NotImplementedError("Week 2 Day 4 Task 1: The online softmax")

    def result(self) -> mx.array:
        """float32 [..., rows, D]: the attention over all keys taken in so far; zeros for a row that saw none.

        It may be called between two tiles: the state stays as it is.
        """
        raise NotImplementedError("Week 2 Day 4 Task 1: The online softmax")


def tile_mask(
    mask: mx.array | None, causal: bool, queries: slice, keys: slice, L: int, S: int, like: mx.array
) -> mx.array | None:
    """The mask to add to the scores of one tile; None if there is no mask and the causal rule hides nothing in it.

    Args:
        mask: float32 [L, S], [B, 1 or H, L, S] or None.
        causal: whether the keys after S − L + i are also hidden from query i.
        queries: the tile's part of the L queries; keys: its part of the S keys. Both have a start and a stop.
        like: there so that both packages are called alike, and ignored: MLX arrays belong to no device.

    Returns:
        float32 [..., queries, keys]: the piece of ``mask``, with −inf where the causal rule hides a key. ``mask``
        itself stays as it is.
    """
    raise NotImplementedError("Week 2 Day 4 Task 2: The mask of a tile")


def flash_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | None = None,
    causal: bool = False,
    query_tile: int = QUERY_TILE,
    key_tile: int = KEY_TILE,
) -> mx.array:
    """Grouped attention, tile by tile; equal to `scaled_dot_product_attention_grouped`.

    No array that it makes is larger than the query, the keys or the scores of one tile in all heads, even if a mask
    is given. Key tiles that the causal rule hides from all queries of a tile are not computed.

    Args:
        query: [B, H, L, D].
        key: [B, Hkv, S, D]; value likewise. Hkv must divide H.
        scale: what to multiply the scores by; 1/√D when None.
        mask: of shape [L, S] or [B, 1 or H, L, S], added to the scores; None hides nothing.
        causal: apply the rule of `causal_mask(L, S)` without an array for it.
        query_tile: queries at a time; key_tile: keys at a time. Both at least 1.

    Returns:
        [B, H, L, D], computed in float32, in the dtype of ``query``. A query that may see no key yields zeros.

    Raises:
        ValueError: Hkv doesn't divide H.
    """
    raise NotImplementedError("Week 2 Day 4 Task 3: Tile by tile")
