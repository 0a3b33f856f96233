"""A model whose layers really use their caches, and notice when a page holds anything but what was put there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from week_1.numpy_model import HKV, D
from week_2.scripted import LAYERS, CachingModel

from coursekit.check import check

from .pages import UNUSED, allocator_of, pool_of


class PagingModel(CachingModel):
    """Wants `script` after the prompt; every layer writes its keys and values and checks all that come back.

    `pages` holds how many pages the sequence had in each call of `hidden`.
    """

    def __init__(self, lab: Any, prompt_length: int, script: Sequence[int], max_positions: int = 40) -> None:
        super().__init__(lab, prompt_length, script, max_positions)
        self.pages: list[int] = []
        self.fails_at: int | None = None  # the call of `hidden` that ends with `failure`
        self.failure: type[BaseException] = KeyError

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        """States as the scripted model gives them, after the caches of all layers were used."""
        before = len(self.known)
        states = super().hidden(tokens, positions, caches)
        for layer, cache in enumerate(self.caches):
            self._run(layer, cache, before)
        self.pages.append(len(self.caches[0].sequence.pages))
        if self.fails_at == len(self.calls) - 1:
            raise self.failure("the model failed, as the test wanted it to")
        return states

    def _run(self, layer: int, cache: Any, before: int) -> None:
        kind = self.lab.paged.sequence.GatherCache
        assert isinstance(cache, kind), f"layer {layer} got a {type(cache).__name__}, not a GatherCache"
        sequence = cache.sequence
        assert cache.layer == layer, (
            f"the cache given to layer {layer} looks at layer {cache.layer} of the pool"
        )
        assert sequence is self.caches[0].sequence, "the layers' caches belong to different sequences"
        assert sequence.length == before, (
            f"when layer {layer} runs, the sequence's length is {sequence.length}, and {before} tokens are in the "
            "pool: it advances once a step, after the model has run"
        )
        room = len(sequence.pages) * sequence.page_size
        assert room >= len(self.known), (
            f"the model runs on token {len(self.known) - 1}, and there are pages for {room} tokens: reserve first"
        )
        keys, values = keys_and_values(self.known, layer)
        new = [self.lab.array(part[:, :, before:]) for part in (keys, values)]
        fetched = cache.update_and_fetch(*new)
        for name, actual, expected in zip(("keys", "values"), fetched, (keys, values), strict=False):
            name = f"the {name} of layer {layer} after {len(self.known)} tokens"
            check(actual, expected, name=name, axes="1 Hkv S D", rtol=0, atol=0, nan=UNUSED)


def keys_and_values(ids: Sequence[int], layer: int) -> tuple[np.ndarray, np.ndarray]:
    """What a layer makes of some tokens: [1, Hkv, S, D] each, different for every id, position and layer."""
    phase = np.array(ids)[:, None] * 1.7 + np.arange(len(ids))[:, None] * 0.3 + layer * 11.0
    angles = phase + np.arange(HKV * D)
    parts = [wave(angles).reshape(1, len(ids), HKV, D).transpose(0, 2, 1, 3) for wave in (np.sin, np.cos)]
    keys, values = (part.astype(np.float32).astype(np.float64) for part in parts)
    return keys, values


def storage_of(lab: Any, num_pages: int, page_size: int) -> tuple[Any, Any]:
    """A pool for such a model, full of NaN, and its allocator."""
    return pool_of(lab, num_pages, page_size, LAYERS), allocator_of(lab, num_pages)
