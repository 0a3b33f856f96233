"""A model for ragged batches; its attention reads the pool token by token, and fails a test on what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from week_2.reading_model import LAYERS, V, fingerprints, scores_after

from .beside_pages import arrays_of, places_of
from .pages import allocator_of, spoil

SIX = ("query", "keys", "values", "meta", "scale", "causal")


def six_arguments(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Fail a test unless a stand-in for attention was given its six arguments positionally."""
    __tracebackhide__ = True
    assert not named, (
        f"`attention` was given {', '.join(named)} by name: pass all six positionally, other ways to attend may call "
        "them otherwise"
    )
    assert len(arguments) == len(SIX), (
        f"`attention` takes six arguments: {', '.join(SIX)}; it was given {len(arguments)}"
    )


class RaggedModel:
    """Every layer writes each token and its position; what comes out follows from all tokens before, in order.

    `runs` holds for each run how many tokens each sequence brought and how many it has then; `head_rows` how many
    rows each call of `logits` had. `fails_at` is the run that ends with the error `fails_with`, after all layers.
    """

    def __init__(self, lab: Any, max_positions: int = 64) -> None:
        self.lab = lab
        self.config = SimpleNamespace(
            num_layers=LAYERS, max_positions=max_positions, num_kv_heads=1, head_dim=2
        )
        self.embedding = SimpleNamespace(weight=lab.array(np.zeros((V, 2))))
        self.runs: list[list[tuple[int, int]]] = []
        self.head_rows: list[int] = []
        self.fails_at: int | None = None
        self.fails_with: type[BaseException] = KeyError
        self.layer = 0
        self.positions: list[int] = []

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        """States [1, T, 2]: the fingerprint of the sequence up to each token, and how long it is."""
        ids = self.lab.numpy(tokens)
        assert ids.ndim == 2, f"the model takes token ids [B, L]; these are {list(ids.shape)}"
        assert len(ids) == 1, f"the tokens of all sequences go into one row; these are {len(ids)} rows"
        assert ids.size, "the model was run on no tokens at all"
        assert "int" in self.lab.dtype(tokens), f"token ids must be integers, not {self.lab.dtype(tokens)}"
        self.positions = self._positions(positions, ids.shape[1])
        self._accept(caches)
        new = np.stack([ids[0], self.positions], axis=-1)[None, None].astype(np.float64)
        pair = self.lab.array(new)  # query and key
        for self.layer, cache in enumerate(caches):
            value = np.stack([ids[0], np.full_like(ids[0], self.layer)], axis=-1)[None, None].astype(
                np.float64
            )
            out = cache.attend(pair, pair, self.lab.array(value), 1.0)
        if self.fails_at == len(self.runs) - 1:
            raise self.fails_with("the model failed, as the test wanted it to")
        return out[0]

    def logits(self, hidden: Any) -> Any:
        """Scores [..., V] for states [..., 2]."""
        states = self.lab.numpy(hidden)
        self.head_rows.append(states.size // 2)
        assert states.size, "the head ran, but on no row: where no request samples, it must not run"
        rows = [scores_after(int(state[0])) for state in states.reshape(-1, 2)]
        return self.lab.array(np.array(rows).reshape(*states.shape[:-1], V))

    def read(self, *arguments: Any, **named: Any) -> tuple[Any, Any]:
        """In the place of `paged_attention`: follow the metadata to each sequence's tokens, and fingerprint them."""
        six_arguments(arguments, named)
        query, keys, values, meta, _, causal = arguments
        assert causal, "tokens must not see those after them: attention was asked not to be causal"
        *indices, keys, values = arrays_of(meta, ("cu_seqlens_q", "block_table", "seq_lens_kv"), keys, values)
        starts, tables, kv_lens = (x.tolist() for x in indices)
        P, out, run = keys.shape[1], np.zeros((len(query), 1, 2)), []
        for b, kv_len in enumerate(kv_lens):
            places = [tables[b][p // P] * P + p % P for p in range(kv_len)]
            ids = self._tokens(keys.reshape(-1, 2)[places], values.reshape(-1, 2)[places])
            count = starts[b + 1] - starts[b]
            standing = list(range(kv_len - count, kv_len))
            assert self.positions[starts[b] : starts[b + 1]] == standing, (
                f"{count} tokens of a sequence that has {kv_len} then stand at positions {standing}; the model got "
                f"{self.positions[starts[b] : starts[b + 1]]}"
            )
            out[starts[b] : starts[b + 1], 0, 0] = fingerprints(ids)[kv_len - count :]
            out[starts[b] : starts[b + 1], 0, 1] = np.array(standing) + 1
            run.append((count, kv_len))
        if self.layer == 0:
            self.runs.append(run)
        return self.lab.array(out), self.lab.array(out[:, :, 0])

    def _tokens(self, keys: np.ndarray, values: np.ndarray) -> list[int]:
        """The tokens of one sequence, once it is certain that they are its own, in order."""
        empty = np.isnan(keys).any(axis=1)
        assert not empty.any(), (
            f"layer {self.layer} reads position {int(np.argmax(empty))} of a sequence, where nothing was written: "
            "new tokens are written first, and pages are read in the table's order"
        )
        found = keys[:, 1].astype(int).tolist()
        expected = list(range(len(found)))
        assert found == expected, (
            f"positions {expected} of a sequence are read, and hold the tokens of {found}"
        )
        layers = set(values[:, 1].astype(int).tolist())
        assert layers == {self.layer}, f"layer {self.layer} reads what layers {sorted(layers)} have written"
        return keys[:, 0].astype(int).tolist()

    def _positions(self, positions: Any, count: int) -> list[int]:
        assert self.lab.is_array(positions), (
            f"tokens of many sequences stand at positions that only an array can say, not {positions!r}"
        )
        standing = self.lab.numpy(positions).reshape(-1).tolist()
        assert len(standing) == count, f"{count} tokens stand at {len(standing)} positions"
        limit = self.config.max_positions
        assert max(standing) < limit, (
            f"a token stands at position {max(standing)}; the last one is {limit - 1}"
        )
        return standing

    def _accept(self, caches: Any) -> None:
        """A cache for each layer, all with the same metadata."""
        assert caches is not None, "the model was run without the caches"
        assert len(caches) == LAYERS, f"{len(caches)} caches were given for {LAYERS} layers"
        kind = self.lab.paged.paged_cache.PagedCache
        found = places_of(caches, kind)
        for layer, (fits, name, looks_at, meta) in enumerate(found):
            assert fits, f"layer {layer} got a {name}, not a {kind.__name__}"
            assert looks_at == layer, f"the cache given to layer {layer} looks at layer {looks_at}"
            assert meta is found[0][3], "each layer got metadata of its own: they are built once a step"


def storage_for(lab: Any, model: RaggedModel, num_pages: int, page_size: int) -> tuple[Any, Any]:
    """A pool for the model, full of NaN, and its allocator."""
    pool = lab.paged.pool.KvPool(model.config, num_pages, page_size, device=lab.device)
    spoil(pool)
    return pool, allocator_of(lab, num_pages)


def runner_of(lab: Any, model: RaggedModel, num_pages: int = 40, page_size: int = 3) -> tuple[Any, Any]:
    """A runner for the model, whose attention reads the pool token by token, and the allocator of its pool."""
    pool, allocator = storage_for(lab, model, num_pages, page_size)
    return lab.paged.model_runner.ModelRunner(model, pool, model.read), allocator
