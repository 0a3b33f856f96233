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
    raise NotImplementedError("Week 2 Day 5 Task 3: The kernel")


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
    raise NotImplementedError("Week 2 Day 5 Task 3: The kernel")


def merge_parts(out: mx.array, peaks: mx.array, totals: mx.array) -> mx.array:
    """Merge the parts of a past: each counts with exp(its peak − the highest peak).

    Args:
        out, peaks, totals: as :func:`attend_parts` gives them; they are only read. Each query has seen a key in at
            least one part.

    Returns:
        float32 [B, Hkv, Q, D].
    """
    raise NotImplementedError("Week 2 Day 5 Task 4: All parts together")


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
    raise NotImplementedError("Week 2 Day 5 Task 4: All parts together")


def part_count(heads: int, S: int) -> int:
    """The number of parts for a past of S keys, chosen so that there are about :data:`PIECES` pieces of work.

    It is less where the parts would have fewer than :data:`MIN_PART` keys.

    Args:
        heads: B · Hkv.
    """
    return max(1, min(PIECES // heads, S // MIN_PART))
