"""Float64 oracles for Day 2.5: tiles, the online softmax of one query, and a past that is cut into parts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .flash_oracle import HIDDEN, as_float32, causal
from .packed import rounded_to_bfloat16

TILE = 64
DTYPES = ("float32", "bfloat16")
NAN = float("nan")


def random_numbers(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    """Numbers of both signs that `dtype` holds exactly, in float64."""
    x = np.random.default_rng([seed, *shape]).normal(size=shape)
    return rounded_to_bfloat16(x) if dtype == "bfloat16" else as_float32(x)


def stored(x: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers as a kernel is given them: float32, or the int16 bits of bfloat16."""
    x = np.ascontiguousarray(x, np.float32)
    return x if dtype == "float32" else (x.view(np.uint32) >> 16).astype(np.uint16).view(np.int16)


def with_nan_behind(x: np.ndarray, dtype: str, axis: int = 0, room: int = 5) -> np.ndarray:
    """`x` as a kernel is given it, in storage that goes on with NaN along `axis`."""
    shape = [room if n == axis else size for n, size in enumerate(x.shape)]
    return stored(np.concatenate([x, np.full(shape, NAN)], axis=axis), dtype)


def filled_up(weights: np.ndarray) -> np.ndarray:
    """The weights of the keys that are seen, with zeros up to a whole tile."""
    return np.concatenate([weights, np.zeros(TILE - len(weights))])


def folded(
    scores: np.ndarray, peak: float, total: float, out: np.ndarray
) -> tuple[np.ndarray, float, float, np.ndarray]:
    """The weights, the peak, the total and `out` after one tile of one query; `scores` of what it sees."""
    highest = max(peak, scores.max())
    weights, keep = np.exp(scores - highest), np.exp(peak - highest)
    return weights, highest, total * keep + weights.sum(), out * keep


@dataclass
class Past:
    """Queries, keys and values for the last L of S tokens; the G query heads of each group are apart."""

    query: np.ndarray  # [B, Hkv, G, L, D]
    key: np.ndarray  # [B, Hkv, S, D]
    value: np.ndarray
    scale: float

    @classmethod
    def random(
        cls,
        seed: int,
        L: int,
        S: int,
        dtype: str = "float32",
        B: int = 2,
        Hkv: int = 2,
        G: int = 3,
        D: int = 8,
    ) -> Past:
        query = random_numbers(seed, B, Hkv, G, L, D)
        key, value = (random_numbers(seed + n, B, Hkv, S, D, dtype=dtype) for n in (1, 2))
        return cls(query, key, value, 0.4)

    def parts(
        self,
        count: int,
        mask: np.ndarray | None = None,
        whole_tiles: bool = False,
        keys: int | None = None,
        lowest: float = HIDDEN,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `attend_parts` must write: out [B, Hkv, parts, Q, D], peaks and totals [B, Hkv, parts, Q].

        Args:
            mask: [L, S] or [G, L, S]; the causal one when None.
            whole_tiles: the mistake of going on to the end of a part's last tile.
            keys: the mistake of sharing out these keys alone; None for all.
            lowest: the mistake of a peak that can't be lower than this.
        """
        (B, Hkv, G, L, D), S = self.query.shape, self.key.shape[2]
        mask = causal(L, S) if mask is None else mask
        scores = np.einsum("bhgld,bhsd->bhgls", self.query, self.key) * self.scale + mask
        edges = [part * (S if keys is None else keys) // count for part in range(count + 1)]
        out, peaks = np.zeros((B, Hkv, count, G * L, D)), np.full((B, Hkv, count, G * L), HIDDEN)
        totals = np.zeros_like(peaks)
        for part, (first, last) in enumerate(pairwise(edges)):
            if whole_tiles:
                last = min(S, first + -(-(last - first) // TILE) * TILE)
            some = scores[..., first:last].reshape(B, Hkv, G * L, -1)
            peak = some.max(axis=-1, initial=lowest)
            weights = np.exp(some - np.where(peak == HIDDEN, 0.0, peak)[..., None])
            out[:, :, part] = weights @ self.value[:, :, first:last]
            peaks[:, :, part], totals[:, :, part] = peak, weights.sum(axis=-1)
        return out, peaks, totals

    def leftovers(self, count: int) -> np.ndarray:
        """What `out` gains where the raw scores of a tile are taken for weights by queries that see nothing of it."""
        (B, Hkv, G, L, D), S = self.query.shape, self.key.shape[2]
        scores = np.einsum("bhgld,bhsd->bhgls", self.query, self.key) * self.scale
        gained = np.zeros((B, Hkv, count, G, L, D))
        for part in range(count):
            last = (part + 1) * S // count
            for start in range(part * S // count, last, TILE):
                tile = slice(start, min(start + TILE, last))
                blind = np.arange(L) + S - L < start
                raw = scores[..., tile] * blind[:, None]
                gained[:, :, part] += raw @ self.value[:, :, None, tile]
        return gained.reshape(B, Hkv, count, G * L, D)

    def of_bits(self, dtype: str) -> Past:
        """The same with keys and values that are the bits of `dtype`, taken for numbers."""
        if dtype == "float32":
            return self
        key, value = (stored(x, dtype).astype(np.float64) for x in (self.key, self.value))
        return Past(self.query, key, value, self.scale)

    def heads(self) -> np.ndarray:
        """The queries as attention takes them: [B, H, L, D]."""
        B, Hkv, G, L, D = self.query.shape
        return self.query.reshape(B, Hkv * G, L, D)


def top_left(L: int, S: int) -> np.ndarray:
    """The causal mask at the wrong corner: query i sees keys up to i."""
    return causal(L, S, shift=L - S)


def by_query(G: int, L: int, S: int) -> np.ndarray:
    """[G, L, S]: what the queries see if neighbors among the G·L are taken for the heads of one token."""
    place = (np.arange(G * L) // G).reshape(G, L, 1)
    return np.where(np.arange(S) > S - L + place, HIDDEN, 0.0)
