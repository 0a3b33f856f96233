"""Attention of a few queries over many keys, in Metal: the case of every decode step (Day 2.5).

Such a step is bound by memory: each key and value serves only a handful of multiplications. The kernel reads each of
them from memory once, for all the query heads that share it, and keeps no scores at all.
"""

from __future__ import annotations

import math

import mlx.core as mx

from .metal import SIMD, metal_kernel

PIECES = 256
"""How many simdgroups keep a GPU busy, roughly."""
MIN_PART = 64
"""The fewest keys of a part, where a past is cut at all."""


def attend_source() -> str:
    """The body of a Metal kernel: attention of Q queries to one part of the keys of one key head.

    A simdgroup has a *piece*: one part of one key head of one row. Pieces are counted part by part, key head by key
    head, row by row. Part p has the keys p·S / parts … (p + 1)·S / parts − 1.

    What it finds: ``query`` float [B, Hkv, Q, D]; ``key`` and ``value`` [B, Hkv, S or more, D], with their sizes in
    ``key_shape``; the numbers ``L``, ``S``, ``parts`` (int) and ``scale`` (float); the constants ``Q`` and ``D``. The
    grid has 32 · B · Hkv · parts threads. Query q is that of token q % L, and sees keys 0 … S − L + q % L.

    What it writes, every element once: ``out`` float [B, Hkv, parts, Q, D], the weighted sum of the part's values,
    not divided yet; ``peaks`` float [B, Hkv, parts, Q], the highest score in the part, or −inf where no key is seen;
    ``totals`` float [B, Hkv, parts, Q], the sum of exp(score − peak).
    """
    return """
    constexpr int SPAN = (D + 31) / 32;          // numbers of a key that a thread holds
    int lane = thread_index_in_simdgroup;
    int piece = thread_position_in_grid.x / 32;
    int head = piece / parts;                    // counts the key heads of all rows
    int part = piece % parts;
    int room = key_shape[2];

    float gathered[Q][SPAN], peak[Q], total[Q];
    for (int q = 0; q < Q; ++q) {
        peak[q] = -INFINITY;
        total[q] = 0;
        for (int n = 0; n < SPAN; ++n) {
            gathered[q][n] = 0;
        }
    }
    for (int j = part * S / parts; j < (part + 1) * S / parts; ++j) {
        float k[SPAN], v[SPAN];                  // read once, for all queries
        for (int n = 0; n < SPAN; ++n) {
            int d = lane + 32 * n;
            k[n] = v[n] = 0;
            if (d < D) {
                k[n] = key[(head * room + j) * D + d];
                v[n] = value[(head * room + j) * D + d];
            }
        }
        for (int q = 0; q < Q; ++q) {
            if (j > S - L + q % L) {
                continue;
            }
            float score = 0;
            for (int n = 0; n < SPAN; ++n) {
                int d = lane + 32 * n;
                if (d < D) {
                    score += query[(head * Q + q) * D + d] * k[n];
                }
            }
            score = simd_sum(score) * scale;
            float highest = max(peak[q], score);
            float keep = exp(peak[q] - highest);
            float weight = exp(score - highest);
            for (int n = 0; n < SPAN; ++n) {
                gathered[q][n] = gathered[q][n] * keep + weight * v[n];
            }
            total[q] = total[q] * keep + weight;
            peak[q] = highest;
        }
    }
    for (int q = 0; q < Q; ++q) {
        for (int n = 0; n < SPAN; ++n) {
            int d = lane + 32 * n;
            if (d < D) {
                out[(piece * Q + q) * D + d] = gathered[q][n];
            }
        }
        if (lane == 0) {
            peaks[piece * Q + q] = peak[q];
            totals[piece * Q + q] = total[q];
        }
    }
    """


def attend_parts(
    query: mx.array, key: mx.array, value: mx.array, L: int, S: int, scale: float, parts: int
) -> tuple[mx.array, mx.array, mx.array]:
    """Attend to each part of the past by itself, by the kernel of :func:`attend_source`.

    Args:
        query: float32 [B, Hkv, Q, D]: the Q = H/Hkv · L queries that share a key head, query head by query head.
        key: [B, Hkv, S or more, D], any float dtype; value likewise.
        L: new tokens; query q is that of token q % L.
        S: keys in all; nothing behind them is read.
        scale: what to multiply the scores by.
        parts: how many parts the past is cut into.

    Returns:
        out [B, Hkv, parts, Q, D], peaks and totals [B, Hkv, parts, Q], all float32; see :func:`attend_source`.
    """
    B, Hkv, Q, D = query.shape
    names = ("query", "key", "value", "L", "S", "parts", "scale")
    kernel = metal_kernel("attend_parts", names, ("out", "peaks", "totals"), attend_source())
    out, peaks, totals = kernel(
        inputs=[query, key, value, L, S, parts, float(scale)],
        template=[("Q", Q), ("D", D)],
        grid=(SIMD * B * Hkv * parts, 1, 1),
        threadgroup=(SIMD, 1, 1),
        output_shapes=[(B, Hkv, parts, Q, D), (B, Hkv, parts, Q), (B, Hkv, parts, Q)],
        output_dtypes=[mx.float32] * 3,
    )
    return out, peaks, totals


def merge_parts(out: mx.array, peaks: mx.array, totals: mx.array) -> mx.array:
    """Merge the parts of a past: each counts with exp(its peak − the highest peak).

    Args:
        out, peaks, totals: as :func:`attend_parts` gives them; they are only read. Each query has seen a key in at
            least one part.

    Returns:
        float32 [B, Hkv, Q, D].
    """
    shares = mx.exp(peaks - peaks.max(axis=2, keepdims=True))
    return (out * shares[..., None]).sum(axis=2) / (totals * shares).sum(axis=2)[..., None]


def decode_attention(
    query: mx.array, key: mx.array, value: mx.array, scale: float | None = None, length: int | None = None
) -> mx.array:
    """Grouped causal attention of the last L of S tokens: one read of the past, no mask, and no L × S array.

    Equal to Day 1.3's attention under `causal_mask(L, S)`. Right for any 1 ≤ L ≤ S; fast for small L.

    Args:
        query: [B, H, L, D].
        key: [B, Hkv, S or more, D], any float dtype; value likewise. If contiguous, they are read where they lie.
        scale: what to multiply the scores by; 1/√D when None.
        length: S, where the arrays are storage with room to spare; nothing behind the S keys is read. None for all.

    Returns:
        [B, H, L, D], in the dtype of ``query``; computed in float32.

    Raises:
        ValueError: not 0 < L ≤ S ≤ the storage's size, or Hkv doesn't divide H.
    """
    B, H, L, D = query.shape
    Hkv, S = key.shape[1], key.shape[2] if length is None else length
    if not 0 < L <= S <= key.shape[2]:
        raise ValueError(f"{L} queries can't be the last of {S} tokens in a storage of {key.shape[2]}")
    if H % Hkv:
        raise ValueError(f"{H} query heads can't share {Hkv} key-value heads evenly")
    queries = query.astype(mx.float32).reshape(B, Hkv, H // Hkv * L, D)
    factor = 1 / math.sqrt(D) if scale is None else scale
    parts = attend_parts(queries, key, value, L, S, factor, part_count(B * Hkv, S))
    return merge_parts(*parts).reshape(B, H, L, D).astype(query.dtype)


def part_count(heads: int, S: int) -> int:
    """The number of parts for a past of S keys, chosen so that there are about :data:`PIECES` pieces of work.

    It is less where the parts would have fewer than :data:`MIN_PART` keys.

    Args:
        heads: B · Hkv.
    """
    return max(1, min(PIECES // heads, S // MIN_PART))
