"""Scores and values for the online softmax of Day 2.4, and what the usual mistakes would make of them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .flash_oracle import HIDDEN, as_float32, average

RAMPS = {
    "ascending": np.array([-1e4, -9e3, -1.0, 0.0, 5e3, 1e4 - 1, 1e4 - 0.5, 1e4]),
    "descending": np.array([1e4, 1e4 - 0.5, 1e4 - 1, 5e3, 0.0, -1.0, -9e3, -1e4]),
    "far below zero": np.array([-1e4, -1e4 + 1, -1e4 - 2, -1e4, -1e4 + 0.5, -1e4, -1e4 - 1, -1e4 + 2]),
    "far above zero": np.array([1e4, 1e4 + 1, 1e4 - 2, 1e4, 1e4 + 0.5, 1e4, 1e4 - 1, 1e4 + 2]),
}


def random_scores(seed: int, keys: int = 9) -> tuple[np.ndarray, np.ndarray]:
    """Scores [2, 3, 4, keys] of which some are hidden, and values [2, 3, keys, 5]."""
    rng = np.random.default_rng(seed)
    scores = np.where(rng.random((2, 3, 4, keys)) < 0.25, HIDDEN, 3 * rng.normal(size=(2, 3, 4, keys)))
    scores[..., 2] = 0.5
    return as_float32(scores), as_float32(rng.normal(size=(2, 3, keys, 5)))


def cut(keys: int, *edges: int) -> list[slice]:
    """Tiles of `keys` keys that end at `edges`."""
    return [slice(a, b) for a, b in zip((0, *edges), (*edges, keys), strict=True)]


def forgetful(scores: np.ndarray, values: np.ndarray, tiles: Sequence[slice]) -> dict[str, Any]:
    """What the usual mistakes would give: sums of tiles that are each measured against their own peak."""

    def sums(against: str, out: bool, total: bool) -> np.ndarray:
        peak = np.full((*scores.shape[:-1], 1), HIDDEN)
        above, below = np.zeros((*scores.shape[:-1], values.shape[-1])), np.zeros_like(peak)
        for tile in tiles:
            own = scores[..., tile].max(axis=-1, keepdims=True)
            new = own if against == "tile" else np.maximum(peak, own)
            keep = np.exp(np.where(peak == HIDDEN, HIDDEN, peak - new))
            weights = np.exp(scores[..., tile] - new)
            above = above * (keep if out else 1) + weights @ values[..., tile, :]
            below = below * (keep if total else 1) + weights.sum(axis=-1, keepdims=True)
            peak = new
        return above / below

    return {
        "`out` is not rescaled when the peak rises": lambda: sums("all", False, True),
        "`total` is not rescaled when the peak rises": lambda: sums("all", True, False),
        "neither `out` nor `total` is rescaled when the peak rises": lambda: sums("all", False, False),
        "only the last tile counts": lambda: average(scores[..., tiles[-1]], values[..., tiles[-1], :]),
        "only the first tile counts": lambda: average(scores[..., tiles[0]], values[..., tiles[0], :]),
    }
