"""Attention: softmax, heads and masks (Days 1.1, 1.3 and 2.6).

Sizes: B rows, L new tokens, S keys, H query heads, Hkv key-value heads, D head size, E hidden size.
A mask is added to the scores: 0 lets a query see a key, −inf hides it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx


def softmax(x: mx.array, axis: int = -1) -> mx.array:
    """Turn scores into weights: positive numbers that sum to 1 along one axis.

    A row in which every score is −inf (its query may see no key) gets weights of 0, not NaN.

    Args:
        x: scores, any shape; a score of −inf gets no weight.
        axis: the axis along which the weights sum to 1.

    Returns:
        An array of the shape and dtype of ``x``. Computed in float32, rounded once.

    Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1.
    """
    scores = x.astype(mx.float32)
    peak = scores.max(axis=axis, keepdims=True)
    # Subtracting the peak keeps exp() in range. Where the peak is −inf there is nothing to subtract:
    # −inf − (−inf) would be NaN.
    peak = mx.where(peak == -math.inf, 0.0, peak)
    weights = mx.exp(scores - peak)
    total = weights.sum(axis=axis, keepdims=True)
    return (weights / mx.where(total == 0, 1.0, total)).astype(x.dtype)


def linear(x: mx.array, weight: mx.array, bias: mx.array | None = None) -> mx.array:
    """Multiply by a weight matrix that is stored one output per row: x·Wᵀ + b.

    Args:
        x: [..., in].
        weight: [out, in], in the dtype of ``x``.
        bias: [out], in the dtype of ``x``, or None.

    Returns:
        [..., out], in the dtype of ``x``.
    """
    y = x @ weight.T
    return y if bias is None else y + bias


def scaled_dot_product_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | None = None,
) -> mx.array:
    """Give each query the average of the values, weighted by how well their keys match it.

    softmax(query·keyᵀ·scale + mask)·value, over the last two axes; all axes before them are batch axes.

    Args:
        query: [..., L, D].
        key: [..., S, D].
        value: [..., S, D].
        scale: what to multiply the scores by, 0 included; 1/√D when None.
        mask: numbers that are added to the scores, of any shape that broadcasts to [..., L, S]; None hides nothing.

    Returns:
        [..., L, D], in the dtype of ``query``. A query that may see no key yields zeros.

    Source: Vaswani et al. 2017, section 3.2.1.
    """
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    scores = (query @ key.swapaxes(-1, -2)) * scale
    if mask is not None:
        scores = scores + mask
    return softmax(scores) @ value


def split_heads(x: mx.array, num_heads: int) -> mx.array:
    """Cut the last axis into heads and move the heads in front of the tokens: [B, L, H·D] → [B, H, L, D]."""
    B, L, width = x.shape
    return x.reshape(B, L, num_heads, width // num_heads).swapaxes(1, 2)


def merge_heads(x: mx.array) -> mx.array:
    """Undo :func:`split_heads`: [B, H, L, D] → [B, L, H·D]."""
    B, H, L, D = x.shape
    return x.swapaxes(1, 2).reshape(B, L, H * D)


class MultiHeadAttention:
    """Attention by H heads, each on its own slice of the projected vectors.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(
        self,
        num_heads: int,
        query_weight: mx.array,
        key_weight: mx.array,
        value_weight: mx.array,
        out_weight: mx.array,
    ) -> None:
        """Hold the weights.

        Args:
            num_heads: H; must divide the number of rows of the first three weights.
            query_weight: [H·D, E]; key_weight and value_weight likewise. Head h owns rows h·D … (h+1)·D − 1.
            out_weight: [E, H·D].
        """
        self.num_heads = num_heads
        self.query_weight = query_weight
        self.key_weight = key_weight
        self.value_weight = value_weight
        self.out_weight = out_weight

    def __call__(
        self, query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None = None
    ) -> mx.array:
        """Project, attend in every head, merge the heads, project back.

        Args:
            query: [B, L, E].
            key: [B, S, E]; value likewise.
            mask: of any shape that broadcasts to [B, H, L, S]; None hides nothing.

        Returns:
            [B, L, E].
        """
        heads = scaled_dot_product_attention(
            split_heads(linear(query, self.query_weight), self.num_heads),
            split_heads(linear(key, self.key_weight), self.num_heads),
            split_heads(linear(value, self.value_weight), self.num_heads),
            mask=mask,
        )
        return linear(merge_heads(heads), self.out_weight)


def causal_mask(L: int, S: int, like: mx.array | None = None) -> mx.array:
    """The mask under which the last L of S tokens see themselves and what came before them.

    It is aligned at the bottom right: the last query sees all S keys, and query i sees keys 0 … S − L + i.
    Where L > S, the first L − S queries see no key.

    Args:
        L: how many queries.
        S: how many keys.
        like: the mask takes this array's dtype; float32 when None.

    Returns:
        [L, S]: 0 where a query sees a key, −inf elsewhere.
    """
    hidden = mx.full((L, S), -math.inf, dtype=mx.float32 if like is None else like.dtype)
    return mx.triu(hidden, k=S - L + 1)


def batched_causal_mask(
    L: int, lengths: Sequence[int], S: int | None = None, like: mx.array | None = None
) -> mx.array:
    """The mask of a batch whose rows are aligned on the right: row b's own tokens are its last ``lengths[b]`` keys.

    Each row sees its own tokens as in :func:`causal_mask`, and none of the padding on their left. A row of
    length 0 sees no key.

    Args:
        L: how many queries each row has.
        lengths: how many keys each of the B rows has, new tokens included.
        S: how many columns the mask has, at least the greatest length; None means the greatest length.
        like: the mask takes this array's dtype; float32 when None.

    Returns:
        [B, 1, L, S]: 0 where a query sees a key, −inf elsewhere.
    """
    S = max(lengths) if S is None else S
    causal = causal_mask(L, S, like=like)
    padding = S - mx.array(list(lengths))
    hidden = mx.arange(S) < padding[:, None]
    return mx.where(hidden[:, None, None], mx.array(-math.inf, causal.dtype), causal)


def scaled_dot_product_attention_grouped(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    scale: float | None = None,
    mask: mx.array | None = None,
) -> mx.array:
    """Attention in which H query heads share Hkv key-value heads, one for each H/Hkv neighbors.

    Query head h reads key-value head h // (H/Hkv). Keys and values are not copied.

    Args:
        query: [B, H, L, D].
        key: [B, Hkv, S, D]; value likewise. Hkv must divide H.
        scale: what to multiply the scores by, 0 included; 1/√D when None.
        mask: of shape [L, S] or [B, 1 or H, L, S], added to the scores; None hides nothing.

    Returns:
        [B, H, L, D], in the dtype of ``query``.

    Raises:
        ValueError: Hkv doesn't divide H.

    Source: Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models".
    """
    B, H, L, D = query.shape
    Hkv, S = key.shape[1], key.shape[2]
    if H % Hkv:
        raise ValueError(f"{H} query heads can't share {Hkv} key-value heads evenly")
    if scale is None:
        scale = 1 / math.sqrt(D)
    # All queries of a group are the rows of one matrix. Broadcasting the keys over the group instead would
    # make matmul copy them for each query head.
    rows = query.reshape(B, Hkv, H // Hkv * L, D)
    scores = (rows @ key.swapaxes(-1, -2)).reshape(B, H, L, S) * scale
    if mask is not None:
        scores = scores + mask
    weights = softmax(scores).reshape(B, Hkv, H // Hkv * L, S)
    return (weights @ value).reshape(B, H, L, D)
