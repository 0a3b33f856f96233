"""Attention of a few queries over many keys: the case of every decode step (Day 2.5).

Such a step is bound by memory: each key and value serves only a handful of multiplications. The kernel reads each of
them from memory once, for all the query heads that share it, and keeps no score longer than a tile.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import get_num_threads, prange
from torch import Tensor

from tiny_llm.kernels.compiling import as_floats, as_numpy, inlined, kernel

TILE = 64
"""Keys between two updates of the online softmax: a multiple of 16, and known to the compiler."""
MIN_PART = 256
"""A past is cut only into parts of at least so many keys."""


@inlined
def exponentials(x: np.ndarray, powers: np.ndarray) -> None:
    """Replace numbers that are not above 0 by their exponentials; −inf gives less than 2e-38.

    eˣ = 2ⁿ · 2ᶠ where n is the whole part of x · log₂e and f the rest: a polynomial for 2ᶠ (relative error 2e-7), and
    for 2ⁿ a float whose exponent bits are n. Numba would call the C library for each number; this loop goes 16 at a
    time.

    Args:
        x: float32 [TILE]; overwritten.
        powers: float32 [TILE]; scratch.
    """
    bits = powers.view(np.int32)
    for j in range(TILE):
        exponent = max(x[j] * np.float32(1.44269504), np.float32(-126))
        whole = np.floor(exponent)
        f = exponent - whole
        bits[j] = (np.int32(whole) + 127) << 23
        # Of all polynomials of degree 5 that are 1 at 0, the one whose largest relative error is least.
        p = np.float32(0.05579987) + f * (np.float32(0.00901709) + f * np.float32(0.00186710))
        x[j] = np.float32(1) + f * (np.float32(0.69315131) + f * (np.float32(0.24016446) + f * p))
    for j in range(TILE):
        x[j] *= powers[j]


@inlined
def score_tile(queries: np.ndarray, keys: np.ndarray, scale: np.float32, scores: np.ndarray) -> None:
    """The scores of all queries for the keys of one tile.

    Args:
        queries: float32 [Q, D].
        keys: float32 [n, D].
        scores: float32 [Q, TILE]; the first n of each row are written.
    """
    raise NotImplementedError("Week 2 Day 5 Task 1: Scores and values of a tile")


@inlined
def add_values(weights: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
    """Add the values of one tile, weighted, to what each query has gathered.

    Four values at a time: ``out`` is then loaded and stored once instead of four times.

    Args:
        weights: float32 [Q, TILE]; the first n of each row count.
        values: float32 [n, D].
        out: float32 [Q, D]; added to.
    """
    raise NotImplementedError("Week 2 Day 5 Task 1: Scores and values of a tile")


@inlined
def fold_scores(
    scores: np.ndarray, seen: int, powers: np.ndarray, peak: np.float32, total: np.float32, out: np.ndarray
) -> tuple[np.float32, np.float32]:
    """The online softmax of one query: turn the scores of a tile into weights, and rescale what came before.

    Args:
        scores: float32 [TILE]; what stands from ``seen`` on means nothing. Overwritten by weights: exp(score − new
            peak) for the keys that are seen, and 0 from ``seen`` on.
        seen: how many of the tile's keys the query may see; at least 1.
        powers: float32 [TILE]; scratch.
        peak: the highest score so far; −inf before the first.
        total: the sum of the weights so far, relative to ``peak``.
        out: float32 [D], the weighted values so far, relative to ``peak``; rescaled to the new peak.

    Returns:
        the new peak and the new total.
    """
    raise NotImplementedError("Week 2 Day 5 Task 2: The softmax of one query")


@kernel
def attend_parts(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    L: int,
    S: int,
    scale: np.float32,
    out: np.ndarray,
    peaks: np.ndarray,
    totals: np.ndarray,
) -> None:
    """Attend to the past in parts, each for itself; a thread takes one part of one key head of one row.

    Part p of P has the keys p·S // P … (p + 1)·S // P − 1.

    Args:
        query: float32 [B, Hkv, Q, D]: the Q = H/Hkv · L queries that share a key head, query head by query head.
        key: [B, Hkv, S or more, D], contiguous, float32 or the bits of bfloat16; value likewise.
        L: new tokens; query i of each head sees keys 0 … S − L + i.
        S: keys in all; what lies behind is not read.
        scale: what to multiply the scores by.
        out: float32 [B, Hkv, parts, Q, D]; overwritten: the weighted sum of the part's values, not divided yet.
        peaks: float32 [B, Hkv, parts, Q]; overwritten: the highest score in the part; −inf where no key is seen.
        totals: float32 [B, Hkv, parts, Q]; overwritten: the sum of exp(score − peak).
    """
    raise NotImplementedError("Week 2 Day 5 Task 3: The kernel")


def merge_parts(out: np.ndarray, peaks: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Put the parts of a past together: each counts with exp(its peak − the highest peak).

    Args:
        out, peaks, totals: what :func:`attend_parts` wrote. For each query, at least one part has seen a key.

    Returns:
        float32 [B, Hkv, Q, D].
    """
    raise NotImplementedError("Week 2 Day 5 Task 4: All parts together")


def decode_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None = None, length: int | None = None
) -> Tensor:
    """Grouped causal attention of the last L of S tokens, for small L: one read of the past, no mask, no long scores.

    Equal to Day 1.3's attention under `causal_mask(L, S)`. Right for any 1 ≤ L ≤ S; fast for a few.

    Args:
        query: [B, H, L, D] on the CPU.
        key: [B, Hkv, S or more, D], float32 or bfloat16; value likewise. If contiguous, they are read where they lie.
        scale: what to multiply the scores by; 1/√D when None.
        length: S, when the arrays are storage with room to spare; what lies behind is not read. All when None.

    Returns:
        [B, H, L, D], in the dtype of ``query``; computed in float32.

    Raises:
        ValueError: S is more than there are keys, there are more queries than keys, or Hkv doesn't divide H.
    """
    raise NotImplementedError("Week 2 Day 5 Task 4: All parts together")


def part_count(heads: int, S: int) -> int:
    """Into how many parts to cut a past of S keys: so many that all threads have the same number of parts to do.

    Args:
        heads: B · Hkv.
    """
    threads = get_num_threads()
    return max(1, min(threads // math.gcd(heads, threads), S // MIN_PART))
