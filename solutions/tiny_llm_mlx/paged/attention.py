"""Attention of a ragged batch over pages: the reference path (Day 3.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mlx.core as mx

from tiny_llm.paged.places import pages_for

from ..attention import causal_mask
from .metadata import ForwardMeta

Attended = tuple[mx.array, mx.array]
"""What attention gives for T tokens: [T, H, D], and the log-sum-exp of the scores [T, H], to merge parts by."""

PagedAttention = Callable[[mx.array, mx.array, mx.array, ForwardMeta, float, bool], Attended]
"""A way to attend: query [T, H, D], a layer's keys and values [N, P, Hkv, D], the step, the scale, whether causal."""


def attend_to(query: mx.array, key: mx.array, value: mx.array, scale: float, causal: bool) -> Attended:
    """Grouped attention of one sequence, with the log-sum-exp of each query and head.

    Computed in float32, whatever comes in; the output alone is rounded, once.

    Args:
        query: [L, H, D], the last L tokens of the sequence.
        key: [S, Hkv, D]; value likewise.
        scale: what to multiply the scores by.
        causal: query i sees keys 0 … S − L + i; if False, all S.

    Returns:
        [L, H, D] in the dtype of ``query``, zeros where nothing is seen, and float32 [L, H], −inf there.
    """
    (L, H, D), (S, Hkv, _) = query.shape, key.shape
    if S == 0:  # MLX refuses the log-sum-exp of no scores
        return mx.zeros_like(query), mx.full((L, H), -math.inf)
    grouped = query.astype(mx.float32).reshape(L, Hkv, H // Hkv, D)
    scores = mx.einsum("lhgd,shd->hgls", grouped, key.astype(mx.float32)) * scale
    if causal and L > 1:
        scores = scores + causal_mask(L, S, like=scores)
    lse = scores.logsumexp(axis=-1)
    weights = mx.exp(scores - mx.where(lse == -math.inf, 0.0, lse)[..., None])
    out = mx.einsum("hgls,shd->lhgd", weights, value.astype(mx.float32))
    return out.reshape(L, H, D).astype(query.dtype), lse.transpose(2, 0, 1).reshape(L, H)


def paged_attention(
    query: mx.array, keys: mx.array, values: mx.array, meta: ForwardMeta, scale: float, causal: bool = True
) -> Attended:
    """The reference path: sequence by sequence, gather its pages and attend.

    It is code on the host: it reads the lists ``starts`` and ``kv_lens``, not ``cu_seqlens_q`` and ``seq_lens_kv``.

    Args:
        query: [T, H, D], the tokens of all sequences one after the other.
        keys: a layer's pages [N, P, Hkv, D], with the new tokens already written; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: as in :func:`attend_to`, for each sequence.

    Returns:
        [T, H, D] and the log-sum-exp [T, H].
    """
    parts = []
    for b, kv_len in enumerate(meta.kv_lens):
        numbers = meta.block_table[b, : pages_for(kv_len, keys.shape[1])]
        key, value = (pages[numbers].flatten(0, 1)[:kv_len] for pages in (keys, values))
        parts.append(attend_to(query[meta.starts[b] : meta.starts[b + 1]], key, value, scale, causal))
    outs, sums = zip(*parts, strict=True)
    return mx.concatenate(list(outs)), mx.concatenate(list(sums))


def merge_attention(parts: Sequence[Attended]) -> Attended:
    """Attention over several sets of keys, from the attention over each; computed in float32.

    Args:
        parts: of each set, [T, H, D] and the log-sum-exp [T, H].

    Returns:
        the same of all sets together, in the dtype of the parts; zeros and −inf where no part has seen anything.
    """
    sums = mx.stack([lse for _, lse in parts])
    lse = sums.logsumexp(axis=0)
    shares = mx.exp(sums - mx.where(lse == -math.inf, 0.0, lse))
    outs = mx.stack([out for out, _ in parts])
    return (outs.astype(mx.float32) * shares[..., None]).sum(axis=0).astype(outs.dtype), lse
