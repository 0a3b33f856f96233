"""Several sequences over the pages of a pool, random and dense: the numbers behind `ragged.py`, and the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Any

import numpy as np
from week_2.decode_oracle import NAN, random_numbers

from .pages import pages_needed, place_of

HKV, G, D = 2, 3, 8
NOTHING = -np.inf
ZERO_PEAKS = (
    "0 stands where nothing is seen, for −inf: a peak is −inf before the first tile, and stays so there"
)

Lengths = Sequence[
    tuple[int, int]
]  # of each sequence: tokens that the pool holds for it, the new ones included; queries
Attended = tuple[np.ndarray, np.ndarray]  # [T, H, D], and the log-sum-exp [T, H]
Seen = Callable[[int, int, int], int]  # (query i, of L, S keys) -> how many keys it sees, from the first on


def bottom_right(i: int, L: int, S: int) -> int:
    """The causal rule: query i sees keys 0 … S − L + i."""
    return max(0, S - L + i + 1)


def everything(i: int, L: int, S: int) -> int:
    return S


WRONG_RULES: dict[str, Seen] = {
    "the causal rule is aligned at the top left: query i sees keys 0 … i, whatever the past": lambda i, L, S: (
        min(S, i + 1)
    ),
    "the causal rule holds only where q_len == kv_len: in a chunk, tokens see the future": (
        lambda i, L, S: i + 1 if L == S else S
    ),
    "there is no mask: tokens see the future": everything,
    "a token doesn't see itself": lambda i, L, S: max(0, S - L + i),
    "a token sees the one after it": lambda i, L, S: min(S, max(0, S - L + i + 2)),
}


def attend_alone(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    scale: float,
    seen: Seen,
    share: Callable[[int, int], int] = lambda h, group: h // group,
) -> tuple[np.ndarray, np.ndarray]:
    """One sequence, dense, in float64: [L, H, D] and the log-sum-exp [L, H]; zeros and −inf where nothing is seen."""
    (L, H, _), (S, Hkv, _) = query.shape, key.shape
    out, lse = np.zeros(query.shape), np.full((L, H), NOTHING)
    for i, h in np.ndindex(L, H):
        count, g = seen(i, L, S), share(h, H // Hkv) % Hkv
        if count > 0:
            scores = key[:count, g] @ query[i, h] * scale
            lse[i, h] = scores.max() + np.log(np.exp(scores - scores.max()).sum())
            out[i, h] = np.exp(scores - lse[i, h]) @ value[:count, g]
    return out, lse


def grouped_apart(pair: Attended, Hkv: int) -> Attended:
    """Output and log-sum-exp of heads that each read key-value head h % Hkv, put in the order Hkv, H/Hkv."""
    out, lse = (x.reshape(len(x), -1, Hkv, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape) for x in pair)
    return out, lse


@dataclass
class RaggedStep:
    """B sequences that bring T tokens in all, over one layer of a pool; float64, but exact in `dtype`."""

    query: np.ndarray  # [T, H, D]
    keys: np.ndarray  # [N, P, Hkv, D], NaN where nothing is
    values: np.ndarray
    tables: list[list[int]]  # the pages of each sequence
    q_lens: list[int]
    kv_lens: list[int]
    scale: float
    dtype: str  # of query, keys and values

    @classmethod
    def random(
        cls,
        seed: int,
        lengths: Lengths,
        P: int,
        *,
        shared: int = 0,
        dtype: str = "float32",
        scale: float = 0.4,
        spare: int = 3,
        sizes: tuple[int, int, int] = (HKV, G, D),
    ) -> RaggedStep:
        """Random numbers in random pages of P tokens.

        Args:
            seed: of the random numbers and of the order of the pages.
            lengths: of each sequence, its keys (past and new) and its queries.
            P: tokens per page.
            shared: how many pages at the front are the same in all sequences, as far as their pasts fill them.
            dtype: "float32" or "bfloat16".
            scale: what to multiply the scores by.
            spare: pages that belong to no sequence.
            sizes: Hkv, query heads to each, D.
        """
        rng = np.random.default_rng(seed)
        kv_lens, q_lens = [kv for kv, _ in lengths], [q for _, q in lengths]
        same = [min(shared, max(0, kv - q) // P) for kv, q in lengths]
        own = [pages_needed(kv, P) - count for kv, count in zip(kv_lens, same, strict=True)]
        front = max(same, default=0)
        N = 1 + front + sum(own) + spare
        free = iter(rng.permutation(np.arange(1, N)).tolist())
        common = [next(free) for _ in range(front)]
        tables = [common[:n] + [next(free) for _ in range(m)] for n, m in zip(same, own, strict=True)]
        heads, group, size = sizes
        query = random_numbers(seed + 1, sum(q_lens), heads * group, size, dtype=dtype)
        arrays = [random_numbers(seed + n, N, P, heads, size, dtype=dtype) for n in (2, 3)]
        held = {place_of(table, p, P) for table, kv in zip(tables, kv_lens, strict=True) for p in range(kv)}
        for array in arrays:
            array.reshape(N * P, heads, size)[[place for place in range(N * P) if place not in held]] = NAN
        return cls(query, arrays[0], arrays[1], tables, q_lens, kv_lens, scale, dtype)

    @property
    def P(self) -> int:
        return self.keys.shape[1]

    @property
    def starts(self) -> list[int]:
        return list(accumulate(self.q_lens, initial=0))

    def meta(self, lab: Any, device: str | None = None) -> Any:
        """The step's ForwardMeta."""
        positions = [
            [max(0, kv - q + i) for i in range(q)] for kv, q in zip(self.kv_lens, self.q_lens, strict=True)
        ]
        places = [
            [place_of(table, p, self.P) if p < kv else 0 for p in row]
            for table, kv, row in zip(self.tables, self.kv_lens, positions, strict=True)
        ]
        width = max(map(len, self.tables))
        filled = [table + [0] * (width - len(table)) for table in self.tables]
        fields = {
            "positions": (list(chain(*positions)), "int64"),
            "slot_mapping": (list(chain(*places)), "int64"),
            "cu_seqlens_q": (self.starts, "int32"),
            "seq_lens_kv": (self.kv_lens, "int32"),
            "block_table": (np.array(filled).reshape(len(filled), width), "int32"),
            "last_rows": ([stop - 1 for stop in self.starts[1:]], "int64"),
        }
        tensors = {name: placed(lab.array(np.array(x), dtype), device) for name, (x, dtype) in fields.items()}
        return lab.paged.metadata.ForwardMeta(**tensors, starts=self.starts, kv_lens=list(self.kv_lens))

    def arguments(self, lab: Any, device: str | None = None) -> tuple[Any, Any, Any]:
        """Query, keys and values as the cache passes them on: heads turned, one layer of a larger array."""
        turned = lab.array(self.query.swapaxes(0, 1), self.dtype).swapaxes(0, 1)
        layers = [
            lab.array(np.stack([np.full_like(x, NAN), x]), self.dtype)[1] for x in (self.keys, self.values)
        ]
        return tuple(placed(x, device) for x in (turned, *layers))

    def dense(self, b: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sequence b by itself: query [L, H, D], keys and values [S, Hkv, D]."""
        places = [place_of(self.tables[b], p, self.P) for p in range(self.kv_lens[b])]
        flat = [x.reshape(-1, *x.shape[2:])[places] for x in (self.keys, self.values)]
        return self.query[self.starts[b] : self.starts[b + 1]], flat[0], flat[1]

    def expected(self, causal: bool = True, **changes: Any) -> tuple[np.ndarray, np.ndarray]:
        """What attention gives for all T tokens, sequence by sequence; `changes` are options of the oracle."""
        options: dict[str, Any] = {
            "scale": self.scale,
            "seen": bottom_right if causal else everything,
        } | changes
        parts = [attend_alone(*self.dense(b), **options) for b in range(len(self.tables))]
        return np.concatenate([out for out, _ in parts]), np.concatenate([lse for _, lse in parts])

    def cut(self, pages: int) -> tuple[RaggedStep, RaggedStep]:
        """The same queries over two sets of pages: up to `pages` full pages of each past, and the rest."""
        first = [
            min(pages, max(0, kv - q) // self.P) for kv, q in zip(self.kv_lens, self.q_lens, strict=True)
        ]
        past = [count * self.P for count in first]
        rest = [kv - count for kv, count in zip(self.kv_lens, past, strict=True)]
        tables = list(zip(self.tables, first, strict=True))
        return (
            replace(self, tables=[table[:count] for table, count in tables], kv_lens=past),
            replace(self, tables=[table[count:] for table, count in tables], kv_lens=rest),
        )


def placed(x: Any, device: str | None) -> Any:
    return x if device is None else x.to(device)
