"""Full caches as the tests handle them: filled from NumPy, with NaN wherever nothing may be read."""

from __future__ import annotations

from typing import Any

import numpy as np
from shared.numbers import as_float32, normal
from week_1.caches import attention_oracle
from week_1.numpy_model import HKV, H

from coursekit import arrays

B, D = 2, 8


def tokens(length: int, seed: int = 21, batch: int = B, size: int = D) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values [B, Hkv, L, D] that float32 holds exactly, no two of them equal."""
    rng = np.random.default_rng(seed)
    both = as_float32(rng.normal(size=(2, batch, HKV, length, size)))
    return both[0], both[1]


def cache_of(lab: Any, capacity: int | None = None) -> Any:
    """An empty cache whose first storage has room for `capacity` tokens, or for as many as usual."""
    cache = lab.kv_cache.FullKvCache()
    if capacity is not None:
        cache.first_capacity = capacity
    return cache


def spoil_unused(cache: Any) -> None:
    """Fill the storage behind the tokens held with NaN, which must never be seen again."""
    if cache.keys is not None:
        cache.keys[:, :, cache.length :] = float("nan")
        cache.values[:, :, cache.length :] = float("nan")


def append(lab: Any, cache: Any, keys: np.ndarray, values: np.ndarray, start: int, stop: int) -> Any:
    """Append tokens `start` to `stop` to a cache whose unused storage is spoiled before and after."""
    spoil_unused(cache)
    fetched = cache.append(lab.array(keys[:, :, start:stop]), lab.array(values[:, :, start:stop]))
    spoil_unused(cache)
    return fetched


def storage_moves(lab: Any, cache: Any, count: int) -> list[int]:
    """Append `count` tokens one by one; at which length the storage lay elsewhere than one token before.

    What `append` returns is let go: while such an array is there, MLX writes to a copy of the storage.
    """
    keys, values = (lab.array(part) for part in tokens(1, batch=1, size=2))
    before, moves = (0, 0), []
    for length in range(1, count + 1):
        cache.append(keys, values)
        after = places(cache)
        if after != before:
            moves.append(length)
        before = after
    return moves[1:]


def places(cache: Any) -> tuple[int, int]:
    """The addresses at which the storage of keys and of values begins."""
    return arrays.span(cache.keys)[0], arrays.span(cache.values)[0]


def causal(L: int, S: int) -> np.ndarray:
    """[L, S]: the last L of S tokens, each seeing itself and those before it."""
    return np.where(np.arange(S) > np.arange(S - L, S)[:, None], -np.inf, 0.0)


def isolated(L: int, S: int) -> np.ndarray:
    return np.where(np.arange(S) < S - L, -np.inf, causal(L, S))


def whole_sequence(length: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Queries, keys and values of a sequence, and what attention over all of it at once gives."""
    keys, values = tokens(length)
    query = normal(5, B, H, length, D)
    return query, keys, values, attention_oracle(query, keys, values, 0.4, causal(length, length))
