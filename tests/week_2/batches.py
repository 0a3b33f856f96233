"""Masks, rotations and attention in float64 loops; a tiny model, and one that tells what each row sees."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from shared.numbers import normal

from coursekit.checking.comparison import CheckFailed

from .scripted import check_stops

# No two sizes are equal, and H·D is not E, so that a mixed-up axis can't pass.
E, H, HKV, D, F, V, LAYERS = 20, 6, 2, 8, 28, 37, 3
MAX_POSITIONS = 40
ROPE_BASE = 500.0


def mask_of_batch(L: int, lengths: Sequence[int], S: int) -> np.ndarray:
    """[B, 1, L, S], one query and key at a time."""
    mask = np.full((len(lengths), 1, L, S), -np.inf)
    for b, i, column in itertools.product(range(len(lengths)), range(L), range(S)):
        place = column - (S - lengths[b])  # which of the row's own keys stands in this column
        if 0 <= place <= lengths[b] - L + i:
            mask[b, 0, i, column] = 0.0
    return mask


def turned(x: np.ndarray, places: Sequence[Sequence[int]], interleaved: bool = False) -> np.ndarray:
    """`x` [B, L, H, D] with token i of row b at position `places[b][i]`; pairs are turned as complex numbers."""
    half = x.shape[-1] // 2
    first = slice(0, None, 2) if interleaved else slice(0, half)
    second = slice(1, None, 2) if interleaved else slice(half, None)
    out = np.empty_like(x)
    for b, i in np.ndindex(x.shape[:2]):
        turn = np.exp(1j * places[b][i] * ROPE_BASE ** (-np.arange(half) / half))
        pairs = (x[b, i, :, first] + 1j * x[b, i, :, second]) * turn
        out[b, i, :, first], out[b, i, :, second] = pairs.real, pairs.imag
    return out


def attention_alone(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float) -> np.ndarray:
    """One request by itself: the last L of its S tokens, query [H, L, D] over keys and values [Hkv, S, D]."""
    out = np.zeros_like(query)
    group, (L, S) = len(query) // len(keys), (query.shape[1], keys.shape[1])
    for h, i in np.ndindex(query.shape[:2]):
        seen = max(S - L + i + 1, 0)
        if seen:
            scores = keys[h // group, :seen] @ query[h, i] * scale
            weights = np.exp(scores - scores.max())
            out[h, i] = weights @ values[h // group, :seen] / weights.sum()
    return out


def aligned(rows: Sequence[np.ndarray], S: int, fill: float = 0.0, left: bool = False) -> np.ndarray:
    """Rows [Hkv, S_b, D] as one batch [B, Hkv, S, D]: at the right of it, or at the left to show a mistake."""
    batch = np.full((len(rows), HKV, S, D), fill)
    for b, row in enumerate(rows):
        start = 0 if left else S - row.shape[1]
        batch[b, :, start : start + row.shape[1]] = row
    return batch


@contextmanager
def rows_of_busy_slots(rows: Callable[[], int]) -> Iterator[None]:
    """Name the cause where an index is too large for the logits of the `rows()` slots that are busy."""
    try:
        yield
    except IndexError as error:
        size = re.search(r"size (\d+)", str(error))
        if size is None or int(size[1]) != rows():
            raise
        raise CheckFailed(
            f"{error}\n  likely cause: the logits are indexed by slot; `batch.decode` returns a row for each busy "
            "slot and none for the idle ones: pair its rows with the busy slots"
        ) from error


def tiny_model(lab: Any) -> Any:
    """A Llama with random weights."""
    sizes = {
        "num_layers": LAYERS,
        "hidden_size": E,
        "num_heads": H,
        "num_kv_heads": HKV,
        "head_dim": D,
        "feed_forward_size": F,
        "vocab_size": V,
        "max_positions": MAX_POSITIONS,
    }
    rest = {"norm_eps": 1e-5, "rope_base": ROPE_BASE, "tied_embeddings": True, "bos_id": None, "end_ids": ()}
    config = lab.config.ModelConfig(architecture="llama", qkv_bias=False, qk_norm=False, **sizes, **rest)
    shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (V, E), "norm.weight": (E,)}
    for i in range(LAYERS):
        shapes |= {
            f"blocks.{i}.attention_norm.weight": (E,),
            f"blocks.{i}.qkv.weight": ((H + 2 * HKV) * D, E),
            f"blocks.{i}.attention_out.weight": (E, H * D),
            f"blocks.{i}.mlp_norm.weight": (E,),
            f"blocks.{i}.gate_up.weight": (2 * F, E),
            f"blocks.{i}.down.weight": (E, F),
        }
    tensors = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        values = normal(seed, *shape)
        tensors[name] = 1 + values / 4 if len(shape) == 1 else values * 1.5 / np.sqrt(shape[-1])
    tensors["embedding.weight"] *= 3  # so that the logits are far apart
    weights = lab.weights.Weights(config, {name: lab.array(values) for name, values in tensors.items()})
    return lab.model.Transformer(config, weights)


class TracingModel:
    """Writes each token and its position into the caches, and notes what every row can read there.

    `scripts` says, by a request's first token, what it wants after its prompt: (length of the prompt, tokens).
    `calls` holds, for each run: `ids` and `places`, the tokens and positions of each row; `seen`, the (token,
    position) pairs that a row's last query may see, in order; `batched`, whether it ran on a batch of slots.
    `head_rows` holds how many rows each call of `logits` had.
    """

    def __init__(self, lab: Any, scripts: Mapping[int, tuple[int, Sequence[int]]] | None = None) -> None:
        self.lab = lab
        self.scripts = scripts or {}
        self.config = SimpleNamespace(num_layers=2, max_positions=MAX_POSITIONS)
        self.embedding = SimpleNamespace(weight=lab.array(np.zeros((V, 2))))
        self.calls: list[SimpleNamespace] = []
        self.head_rows: list[int] = []

    @property
    def decodes(self) -> list[SimpleNamespace]:
        return [call for call in self.calls if call.batched]

    def __call__(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        return self.logits(self.hidden(tokens, positions, caches))

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        """States [B, L, 2]: the first token of the request and how many tokens are seen; NaN for an idle row."""
        assert "int" in self.lab.dtype(tokens), f"token ids must be integers, not {self.lab.dtype(tokens)}"
        ids = self.lab.numpy(tokens)
        assert ids.ndim == 2, f"the model takes token ids [B, L]; these are {list(ids.shape)}"
        assert caches is not None, "the model was run without the caches"
        assert len(caches) == 2, f"{len(caches)} caches were given for 2 layers"
        places = self._places(positions, ids.shape)
        assert places.max() < MAX_POSITIONS, (
            f"a token stands at position {places.max()}; the model has {MAX_POSITIONS}. Does a request go on after "
            "its end? (Taking slots out of the list that you are looping over skips the next one)"
        )
        pairs = np.stack([ids, places], axis=-1)[:, None].astype(np.float64)
        readings = [self._read(cache, self.lab.array(pairs)) for cache in caches]
        seen = self._same_in_both(*readings)
        batched = isinstance(caches[0], self.lab.kv_cache.BatchingKvCache)
        self.calls.append(
            SimpleNamespace(ids=ids.tolist(), places=places.tolist(), seen=seen, batched=batched)
        )
        last = [[row[0][0], len(row)] if row else [np.nan, np.nan] for row in seen]
        states = np.full((*ids.shape, 2), np.nan)
        states[:, -1] = last
        return self.lab.array(states)

    def logits(self, hidden: Any) -> Any:
        """Scores [..., V] for states [..., 2]: the script's token stands out. There may be no rows at all."""
        states = self.lab.numpy(hidden)
        self.head_rows.append(states.size // 2)
        scores = np.array([self._scores(state) for state in states.reshape(-1, 2)])
        return self.lab.array(scores.reshape(*states.shape[:-1], V))

    @staticmethod
    def _same_in_both(first: list[Any], second: list[Any]) -> list[Any]:
        """What the rows see, which must be the same in both layers."""
        for slot, (one, other) in enumerate(zip(first, second, strict=True)):
            assert other or not one, f"layer 1 got no cache for slot {slot}, and layer 0 has one"
            assert one or not other, f"layer 1 still has a cache in slot {slot}, and layer 0 has none"
            grown = len(other) > len(one) and all(pair in other for pair in one)
            assert not grown, f"both layers write into one cache in slot {slot}: each needs its own"
        assert first == second, f"layer 0 sees {first}, layer 1 sees {second}"
        return first

    def _scores(self, state: np.ndarray) -> np.ndarray:
        if np.isnan(state).any():
            return np.full(V, np.nan)
        first, count = int(state[0]), int(state[1])
        prompt_length, script = self.scripts.get(first, (0, ()))
        step = count - prompt_length
        scores = np.sin(np.arange(V) * 1.7 + first + count)
        scores[script[step] if 0 <= step < len(script) else V - 1] += 5
        return scores

    def _places(self, positions: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Positions [B, L], whichever of the three forms they come in."""
        B, L = shape
        if isinstance(positions, (slice, list)):
            rows = positions if isinstance(positions, list) else [positions] * B
            check_stops(rows)
            runs = [list(range(row.start or 0, row.stop)) for row in rows]
        else:
            runs = np.broadcast_to(self.lab.numpy(positions), shape).tolist()
        assert [len(run) for run in runs] == [L] * B, f"{B} rows of {L} tokens, and these positions: {runs}"
        return np.array(runs)

    def _read(self, cache: Any, pairs: Any) -> list[list[tuple[int, int]]]:
        """What the last query of each row may see, once the cache has taken in `pairs` [B, 1, L, 2]."""
        keys, _, mask = cache.update_and_fetch(pairs, pairs)
        keys = self.lab.numpy(keys)
        B, _, S, _ = keys.shape
        last = np.zeros((B, S)) if mask is None else self.lab.numpy(mask)[..., -1, :].reshape(-1, S)
        visible = np.broadcast_to(last == 0, (B, S))
        return [[(int(t), int(p)) for t, p in keys[b, 0, visible[b]]] for b in range(B)]
