"""Fingerprints of a row of tokens, by winnowing (Schleimer, Wilkerson, Aiken: SIGMOD 2003).

Each run of K tokens has a hash; of each W hashes in a row the smallest is kept. So a match of K + W − 1 tokens is
always found, one of fewer than K never, and about 2 / (W + 1) of the hashes are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from grading.similarity.tokens import Token

K = 18  # about two lines
W = 8
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

Hashes = np.ndarray[Any, np.dtype[np.uint64]]


@dataclass(frozen=True)
class Fingerprint:
    """A hash, and the lines on which its tokens stand."""

    hash: int
    first_line: int
    last_line: int


def fingerprints(tokens: Sequence[Token]) -> tuple[Fingerprint, ...]:
    """The kept hashes, in the order of the text; none where there are fewer than K tokens."""
    hashes = run_hashes(tokens)
    kept = []
    for start in _smallest(hashes):
        lines = [token.line for token in tokens[start : start + K]]
        kept.append(Fingerprint(int(hashes[start]), min(lines), max(lines)))
    return tuple(kept)


def run_hashes(tokens: Sequence[Token]) -> Hashes:
    """The hash of each run of K tokens: uint64[len(tokens) − K + 1], or uint64[0]; the same everywhere."""
    if len(tokens) < K:
        return np.zeros(0, np.uint64)
    codes = np.array([_code(token.text) for token in tokens], np.uint64)
    with np.errstate(over="ignore"):
        hashes = np.zeros(len(tokens) - K + 1, np.uint64)
        for offset in range(K):
            hashes = hashes * _FACTOR + codes[offset : offset + len(hashes)]
        # The sums are even too often, so the high bits are mixed in before the smallest is looked for.
        hashes ^= hashes >> _SHIFT
        hashes *= _FACTOR
        return hashes ^ (hashes >> _SHIFT)


def _smallest(hashes: Hashes) -> list[int]:
    """Where the smallest hash of each window stands, the rightmost of equal ones; of a short row, of the whole."""
    if not len(hashes):
        return []
    windows = np.lib.stride_tricks.sliding_window_view(hashes, min(W, len(hashes)))
    size = windows.shape[1]
    places = np.arange(len(windows)) + size - 1 - np.argmin(windows[:, ::-1], axis=1)
    return [int(place) for place in np.unique(places)]


@lru_cache(maxsize=10_000)
def _code(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
