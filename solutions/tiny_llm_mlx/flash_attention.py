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
        peak = mx.maximum(self.peak, scores.max(axis=-1, keepdims=True))
        # A row that has seen nothing yet has a peak of −inf, and −inf − (−inf) would be NaN.
        base = mx.where(peak == -math.inf, 0.0, peak)
        weights = mx.exp(scores - base)
        keep = mx.exp(self.peak - base)
        self.out = self.out * keep + weights @ values.astype(mx.float32)
        self.total = self.total * keep + weights.sum(axis=-1, keepdims=True)
        self.peak = peak

    def result(self) -> mx.array:
        """float32 [..., rows, D]: the attention over all keys taken in so far; zeros for a row that saw none.

        It may be called between two tiles: the state stays as it is.
        """
        return self.out / mx.where(self.total == 0, 1.0, self.total)


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
    piece = None if mask is None else mask[..., queries, keys]
    # Key k is hidden from query q if k > S − L + q; within the tile that is a triangle again.
    diagonal = S - L + queries.start - keys.start + 1
    if not causal or diagonal >= keys.stop - keys.start:
        return piece
    size = queries.stop - queries.start, keys.stop - keys.start
    triangle = mx.triu(mx.full(size, -math.inf, dtype=mx.float32), k=diagonal)
    return triangle if piece is None else piece + triangle


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
    (B, H, L, D), (Hkv, S) = query.shape, key.shape[1:3]
    if H % Hkv:
        raise ValueError(f"{H} query heads can't share {Hkv} key-value heads evenly")
    scale = 1 / math.sqrt(D) if scale is None else scale
    tiles = []
    for start in range(0, L, query_tile):
        queries = slice(start, min(start + query_tile, L))
        count = queries.stop - start
        # All queries of a group are the rows of one matrix, as in the grouped attention of Day 1.3.
        rows = (query[:, :, queries].astype(mx.float32) * scale).reshape(B, Hkv, H // Hkv * count, D)
        state = OnlineSoftmax.empty(rows)
        visible = min(S, S - L + queries.stop) if causal else S
        for first in range(0, visible, key_tile):
            keys = slice(first, min(first + key_tile, visible))
            scores = rows @ key[:, :, keys].astype(mx.float32).swapaxes(-1, -2)
            hidden = tile_mask(mask, causal, queries, keys, L, S, rows)
            if hidden is not None:
                scores = (scores.reshape(B, H, count, -1) + hidden).reshape(scores.shape)
            state.fold(scores, value[:, :, keys])
        tiles.append(state.result().reshape(B, H, count, D).astype(query.dtype))
        # Evaluated now: a graph of all tiles would keep the scores of each in memory until the end.
        mx.eval(tiles[-1])
    return mx.concatenate(tiles, axis=2) if tiles else mx.zeros_like(query)
