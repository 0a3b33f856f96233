"""A model that reads its past from the caches and checks what it finds; its next token follows from all of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from coursekit.checking.objects import collect_garbage, copies, weak

from .scripted import check_stops

V = 29
LAYERS = 2

Choose = Callable[[np.ndarray, list[int]], int]


def fingerprints(ids: Sequence[int]) -> list[int]:
    """A number below 2²⁰ for each token, which depends on it and on all the tokens before it, in order."""
    prints, value = [], 7
    for token in ids:
        value = (value * 31 + token + 1) % 1_000_003
        prints.append(value)
    return prints


def scores_after(fingerprint: int) -> np.ndarray:
    """The scores [V] of the token that follows: one stands out."""
    scores = np.sin(np.arange(V) * 1.3 + fingerprint % 101)
    scores[fingerprint % V] += 5
    return scores


def best(scores: np.ndarray, ids: list[int]) -> int:
    return int(np.argmax(scores))


def alone(
    prompt: Sequence[int],
    max_tokens: int,
    end_ids: Collection[int] = (),
    max_positions: int = 1000,
    choose: Choose = best,
) -> list[int]:
    """What a request must get, whoever else is there: no engine, no caches, one token after the other."""
    if not prompt:
        return []
    ids = list(prompt)
    while len(ids) < min(len(prompt) + max_tokens, max_positions):
        ids.append(choose(scores_after(fingerprints(ids)[-1]), list(ids)))
        if ids[-1] in end_ids:
            break
    return ids[len(prompt) :]


def spans(places: Sequence[int]) -> str:
    """The positions as few words: "0 … 127, 0" for 0 to 127, then 0 again."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    words = [f"{run[0]} … {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(words[:6]) + (", and others" if len(words) > 6 else "")


class ReadingModel:
    """Writes each token, its position and the layer into the caches, and fails a test on whatever is wrong there.

    `runs` says what it was run on: ("prefill", first position, position after the last) or ("decode", busy slots).
    `head_rows` holds how many rows each call of `logits` had. What it computes for an idle slot is NaN. It holds no
    cache itself: `caches_alive` counts those that something else still holds.
    """

    def __init__(self, lab: Any, max_positions: int = 64) -> None:
        self.lab = lab
        self.config = SimpleNamespace(num_layers=LAYERS, max_positions=max_positions)
        self.embedding = SimpleNamespace(weight=lab.array(np.zeros((V, 2))))
        self.runs: list[tuple[Any, ...]] = []
        self.head_rows: list[int] = []
        self._caches: list[Callable[[], Any]] = []  # those that prompts were computed into

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """The chunks that were prefilled, as (first position, position after the last)."""
        return [(run[1], run[2]) for run in self.runs if run[0] == "prefill"]

    @property
    def decodes(self) -> list[list[int]]:
        """The busy slots of each decode."""
        return [run[1] for run in self.runs if run[0] == "decode"]

    def caches_alive(self, at_most: int = 0) -> int:
        """How many of the caches that prompts were computed into still exist; `at_most` is what is expected.

        Only where there are more is the garbage collected: an object in a cycle is held by nothing, but lives on.
        """
        if sum(cache() is not None for cache in self._caches) > at_most:
            collect_garbage()
        self._caches = [cache for cache in self._caches if cache() is not None]
        return len(self._caches)

    def __call__(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        return self.logits(self.hidden(tokens, positions, caches))

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        """States [B, L, 2]: the fingerprint of the sequence up to each token, and how long it is."""
        ids = self.lab.numpy(tokens)
        assert ids.ndim == 2, f"the model takes token ids [B, L]; these are {list(ids.shape)}"
        assert ids.size, "the model was run on no tokens at all"
        assert "int" in self.lab.dtype(tokens), f"token ids must be integers, not {self.lab.dtype(tokens)}"
        assert caches is not None, "the model was run without the caches"
        assert len(caches) == LAYERS, f"{len(caches)} caches were given for {LAYERS} layers"
        places = self._places(positions, ids.shape)
        last = places.max()
        limit = self.config.max_positions
        assert last < limit, (
            f"a token stands at position {last}; the model has {limit}, the last is {limit - 1}"
        )
        batched = isinstance(caches[0], self.lab.kv_cache.BatchingKvCache)
        if not batched:
            known = [cache() for cache in self._caches]
            self._caches += [weak(new) for new in caches if not any(new is old for old in known)]
        for layer, cache in enumerate(caches):
            rows = self._read(layer, cache, ids, places)
        states = np.full((*ids.shape, 2), np.nan)
        for b, sequence in enumerate(rows):
            if sequence:
                states[b, :, 0] = fingerprints(sequence)[-ids.shape[1] :]
                states[b, :, 1] = places[b] + 1
        busy = [b for b, sequence in enumerate(rows) if sequence]
        self.runs.append(("decode", busy) if batched else ("prefill", int(places[0, 0]), int(last) + 1))
        return self.lab.array(states)

    def logits(self, hidden: Any) -> Any:
        """Scores [..., V] for states [..., 2]."""
        states = self.lab.numpy(hidden)
        assert np.isfinite(states).all(), (
            "the row of a slot without caches was sent through the head: either it is idle, or what its request "
            "has computed was never added to the batch"
        )
        self.head_rows.append(states.size // 2)
        rows = [scores_after(int(state[0])) for state in states.reshape(-1, 2)]
        return self.lab.array(np.array(rows).reshape(*states.shape[:-1], V))

    def _places(self, positions: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Positions [B, L], whichever of the three forms they come in."""
        B, L = shape
        if isinstance(positions, slice | list):
            rows = positions if isinstance(positions, list) else [positions] * B
            check_stops(rows)
            runs = [list(range(row.start or 0, row.stop)) for row in rows]
        else:
            runs = np.broadcast_to(self.lab.numpy(positions), shape).tolist()
        assert [len(run) for run in runs] == [L] * B, f"{B} rows of {L} tokens stand at positions {runs}"
        return np.array(runs)

    def _read(self, layer: int, cache: Any, ids: np.ndarray, places: np.ndarray) -> list[list[int]]:
        """Give one layer's cache the new tokens, and return the whole sequence of each row; [] for an idle one."""
        key = np.stack([ids, places], axis=-1)[:, None].astype(np.float64)
        value = np.stack([ids, np.full_like(ids, layer)], axis=-1)[:, None].astype(np.float64)
        keys, values, mask = copies(*cache.update_and_fetch(self.lab.array(key), self.lab.array(value)))
        assert keys is not None, "update_and_fetch gave None for the keys"
        assert values is not None, "update_and_fetch gave None for the values"
        (B, L), S = ids.shape, keys.shape[2]
        visible = np.full((B, L, S), True)
        if mask is not None:
            visible = np.broadcast_to(mask.reshape(-1, L, S) == 0, (B, L, S))
        return [self._sequence(layer, keys[b, 0], values[b, 0], visible[b], places[b]) for b in range(B)]

    def _sequence(
        self, layer: int, keys: np.ndarray, values: np.ndarray, visible: np.ndarray, places: np.ndarray
    ) -> list[int]:
        """The tokens that the last query sees, once it is certain that each query sees what it should."""
        if not visible.any():
            return []
        for query, place in zip(visible, places, strict=True):
            seen = keys[query, 1].astype(int).tolist()
            assert seen == list(range(place + 1)), (
                f"the token at position {place} sees positions {spans(seen)}: it must see 0 … {place}, each once"
            )
        layers = set(values[visible[-1], 1].astype(int).tolist())
        assert layers == {layer}, f"layer {layer} reads what layers {sorted(layers)} have written"
        return keys[visible[-1], 0].astype(int).tolist()
