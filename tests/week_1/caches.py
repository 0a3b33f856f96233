"""Layer caches that stand in for those of later weeks: one prepared, one that records, one that remembers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from .numpy_model import HKV, B, D, H, attend


def attention_oracle(
    query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, mask: np.ndarray
) -> np.ndarray:
    """Grouped attention, one row, head and query at a time; the mask is [L, S] or [B, 1, L, S]."""
    mask = np.broadcast_to(mask, (len(query), 1, query.shape[2], keys.shape[2]))
    out = np.zeros_like(query)
    for b, h, i in np.ndindex(query.shape[:3]):
        seen = np.isfinite(mask[b, 0, i])
        if seen.any():
            k, v = keys[b, h // (H // HKV), seen], values[b, h // (H // HKV), seen]
            out[b, h, i] = attend(query[b, h, i], k, v, scale)
    return out


def dense_cache(lab: Any, keys: np.ndarray, values: np.ndarray, mask: np.ndarray | None) -> Any:
    """A DenseCache that hands out `keys`, `values` and `mask`; `updates` holds all that it was given, in NumPy."""

    def update_and_fetch(self: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        self.updates.append((lab.numpy(key), lab.numpy(value)))
        return lab.array(keys), lab.array(values), None if mask is None else lab.array(mask)

    methods = {"update_and_fetch": update_and_fetch, "updates": []}
    return type("PreparedCache", (lab.kv_cache.DenseCache,), methods)()


class RecordingCache:
    """Keeps the arguments of each call of `attend`, and returns `answer`, or zeros."""

    def __init__(self, lab: Any, answer: np.ndarray | None = None) -> None:
        self.lab = lab
        self.answer = answer
        self.calls: list[SimpleNamespace] = []

    def attend(self, query: Any, key: Any, value: Any, scale: float) -> Any:
        self.calls.append(SimpleNamespace(query=query, key=key, value=value, scale=scale))
        return self.lab.array(np.zeros(tuple(query.shape)) if self.answer is None else self.answer)


class RememberingCache:
    """Keeps keys and values in NumPy and attends over all of them, past and new."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        self.keys = self.values = np.zeros((B, HKV, 0, D))

    def attend(self, query: Any, key: Any, value: Any, scale: float) -> Any:
        self.keys = np.concatenate([self.keys, self.lab.numpy(key)], axis=2)
        self.values = np.concatenate([self.values, self.lab.numpy(value)], axis=2)
        new, total = query.shape[2], self.keys.shape[2]
        mask = np.where(np.arange(total) > np.arange(total - new, total)[:, None], -np.inf, 0.0)
        return self.lab.array(attention_oracle(self.lab.numpy(query), self.keys, self.values, scale, mask))
