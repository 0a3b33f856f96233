"""Attention of a few queries over many keys: the case of every decode step (Day 2.5).

Such a step is bound by memory: each key and value serves only a handful of multiplications. The kernel reads each of
them from memory once, for all the query heads that share it, and keeps only the scores of one tile.
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
"""The fewest keys of a part, where a past is cut at all."""


@inlined
def exponentials(x: np.ndarray, powers: np.ndarray) -> None:
    """Replace numbers of at most 0 by their exponentials; −inf gives less than 2e-38, not 0.

    eˣ = 2ⁿ · 2ᶠ where n is the whole part of x · log₂e and f the rest: a polynomial for 2ᶠ (relative error 2e-7), and
    for 2ⁿ a float whose exponent bits are n. `math.exp` would call the C library for each number; this loop becomes
    vector instructions.

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
    for j in range(len(keys)):
        for i in range(len(queries)):
            score = np.float32(0)
            for d in range(keys.shape[1]):
                score += queries[i, d] * keys[j, d]
            scores[i, j] = score * scale


@inlined
def add_values(weights: np.ndarray, values: np.ndarray, out: np.ndarray) -> None:
    """Add the weighted values of one tile to the sum that each query has gathered.

    Four values at a time: ``out`` is then loaded and stored once instead of four times.

    Args:
        weights: float32 [Q, TILE]; only the first n of each row are used.
        values: float32 [n, D].
        out: float32 [Q, D]; added to.
    """
    fours = len(values) // 4 * 4
    for j in range(0, fours, 4):
        for i in range(len(out)):
            w0, w1, w2, w3 = weights[i, j], weights[i, j + 1], weights[i, j + 2], weights[i, j + 3]
            for d in range(values.shape[1]):
                pair = w0 * values[j, d] + w1 * values[j + 1, d]
                out[i, d] += pair + w2 * values[j + 2, d] + w3 * values[j + 3, d]
    for j in range(fours, len(values)):
        for i in range(len(out)):
            for d in range(values.shape[1]):
                out[i, d] += weights[i, j] * values[j, d]


@inlined
def fold_scores(
    scores: np.ndarray, seen: int, powers: np.ndarray, peak: np.float32, total: np.float32, out: np.ndarray
) -> tuple[np.float32, np.float32]:
    """The online softmax of one query: turn the scores of a tile into weights, and rescale the sums so far.

    Args:
        scores: float32 [TILE]; the numbers from ``seen`` on are arbitrary. Overwritten by weights: exp(score − new
            peak) for the keys that are seen, and 0 from ``seen`` on.
        seen: the number of the tile's keys that the query may see; at least 1.
        powers: float32 [TILE]; scratch.
        peak: the highest score so far; −inf before the first.
        total: the sum of the weights so far, relative to ``peak``.
        out: float32 [D], the weighted values so far, relative to ``peak``; rescaled to the new peak.

    Returns:
        the new peak and the new total.
    """
    scores[seen:] = -np.inf
    highest = peak
    for j in range(0, TILE, 4):
        # Each maximum waits for the one before it; in a tree of four, two of the three needn't.
        highest = max(highest, max(max(scores[j], scores[j + 1]), max(scores[j + 2], scores[j + 3])))
    for j in range(TILE):
        scores[j] -= highest
    exponentials(scores, powers)
    scores[seen:] = 0
    keep = np.float32(math.exp(peak - highest))
    for d in range(len(out)):
        out[d] *= keep
    added = np.float32(0)
    for j in range(TILE):
        added += scores[j]
    return highest, total * keep + added


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
    """Attend to each part of the past by itself; a piece of work is one part of one key head of one row.

    Part p has the keys p·S // parts … (p + 1)·S // parts − 1.

    Args:
        query: float32 [B, Hkv, Q, D]: the Q = H/Hkv · L queries that share a key head, query head by query head.
        key: [B, Hkv, S or more, D], contiguous, float32 or the bits of bfloat16; value likewise.
        L: new tokens; query i of each head sees keys 0 … S − L + i.
        S: keys in all; nothing behind them is read.
        scale: what to multiply the scores by.
        out: float32 [B, Hkv, parts, Q, D]; overwritten: the weighted sum of the part's values, not divided yet.
        peaks: float32 [B, Hkv, parts, Q]; overwritten: the highest score in the part; −inf where no key is seen.
        totals: float32 [B, Hkv, parts, Q]; overwritten: the sum of exp(score − peak).
    """
    B, Hkv, parts, Q, D = out.shape
    for task in prange(B * Hkv * parts):
        row, head, part = task // (Hkv * parts), task // parts % Hkv, task % parts
        scores, powers = np.empty((Q, TILE), np.float32), np.empty(TILE, np.float32)
        room = np.empty((TILE, D), np.float32)
        gathered = np.zeros((Q, D), np.float32)
        peak, total = np.full(Q, -np.inf, np.float32), np.zeros(Q, np.float32)
        last = (part + 1) * S // parts
        for start in range(part * S // parts, last, TILE):
            stop = min(start + TILE, last)
            keys = as_floats(key[row, head, start:stop], room)
            score_tile(query[row, head], keys, scale, scores)
            for i in range(Q):
                seen = min(stop, S - L + i % L + 1) - start
                if seen <= 0:
                    scores[i, :] = 0
                else:
                    peak[i], total[i] = fold_scores(scores[i], seen, powers, peak[i], total[i], gathered[i])
            values = as_floats(value[row, head, start:stop], room)
            add_values(scores, values, gathered)
        out[row, head, part] = gathered
        peaks[row, head, part] = peak
        totals[row, head, part] = total


def merge_parts(out: np.ndarray, peaks: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Merge the parts of a past: each counts with exp(its peak − the highest peak).

    Args:
        out, peaks, totals: as written by :func:`attend_parts`; they are only read. Each query has seen a key in at
            least one part.

    Returns:
        float32 [B, Hkv, Q, D].
    """
    shares = np.exp(peaks - peaks.max(axis=2, keepdims=True))
    return (out * shares[..., None]).sum(axis=2) / (totals * shares).sum(axis=2)[..., None]


def decode_attention(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None = None, length: int | None = None
) -> Tensor:
    """Grouped causal attention of the last L of S tokens: one read of the past, no mask, and no L × S array.

    Equal to Day 1.3's attention under `causal_mask(L, S)`. Right for any 1 ≤ L ≤ S; fast for small L.

    Args:
        query: [B, H, L, D] on the CPU.
        key: [B, Hkv, S or more, D], float32 or bfloat16; value likewise. If contiguous, they are read where they lie.
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
    queries = as_numpy(query.float()).reshape(B, Hkv, H // Hkv * L, D)
    parts = part_count(B * Hkv, S)
    out = np.empty((B, Hkv, parts, queries.shape[2], D), np.float32)
    peaks, totals = np.empty(out.shape[:-1], np.float32), np.empty(out.shape[:-1], np.float32)
    factor = np.float32(1 / math.sqrt(D) if scale is None else scale)
    attend_parts(queries, as_numpy(key), as_numpy(value), L, S, factor, out, peaks, totals)
    return torch.from_numpy(merge_parts(out, peaks, totals).reshape(B, H, L, D)).to(query.dtype)


def part_count(heads: int, S: int) -> int:
    """The number of parts for a past of S keys, chosen so that all threads get equally many pieces of work.

    It is less where the parts would have fewer than :data:`MIN_PART` keys.

    Args:
        heads: B · Hkv.
    """
    threads = get_num_threads()
    return max(1, min(threads // math.gcd(heads, threads), S // MIN_PART))
