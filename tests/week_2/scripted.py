"""A model that knows what its caches hold, whose every answer is known beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from week_1.scripted import ScriptedModel

LAYERS = 3


class CachingModel(ScriptedModel):
    """Wants `script` after a prompt of `prompt_length` tokens, and accepts no token that its caches hold already.

    It keeps the ids that each cache has taken in, so a cache may be any object. `calls` holds the ids of each call
    of `hidden`, `caches` the caches of the last one.
    """

    def __init__(self, lab: Any, prompt_length: int, script: Sequence[int], max_positions: int = 40) -> None:
        super().__init__(lab, prompt_length, script, max_positions)
        self.config = SimpleNamespace(max_positions=max_positions, num_layers=LAYERS)
        self.calls: list[list[int]] = []
        self.caches: list[Any] = []
        self.known: list[int] = []

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        """States [1, L, 3] as the scripted model gives them for the whole sequence, its last L rows."""
        ids = self.lab.numpy(tokens)
        assert ids.ndim == 2, f"the model takes token ids [B, L]; these are {list(ids.shape)}"
        assert len(ids) == 1, f"one sequence is one row; these are {len(ids)}"
        assert ids.size, (
            "the model was run on no token at all: the one chosen last is in no cache yet, so it has to go in"
        )
        assert "int" in self.lab.dtype(tokens), f"token ids must be integers, not {self.lab.dtype(tokens)}"
        self._accept(caches)
        self._count(ids.shape[1])
        self._locate(positions, ids.shape[1])
        self.calls.append(ids[0].tolist())
        self.known += ids[0].tolist()
        assert len(self.known) <= self.config.max_positions, "more tokens than the model has positions"
        row = np.array(self.known, dtype=np.float64)
        states = np.stack([np.arange(1.0, len(row) + 1), row, np.cumsum(row)], axis=1)
        return self.lab.array(states[-ids.shape[1] :][None])

    def _accept(self, caches: Any) -> None:
        """The same caches in each call: one a layer, each an object of its own."""
        assert caches is not None, "the model was run without caches: nobody remembers these tokens"
        caches = list(caches)
        assert len(caches) == LAYERS, f"{len(caches)} caches were given for {LAYERS} layers"
        assert len({id(cache) for cache in caches}) == LAYERS, "two layers share a cache: each needs its own"
        if self.known:
            same = all(a is b for a, b in zip(caches, self.caches, strict=True))
            assert same, f"these are not the caches that hold the {len(self.known)} tokens so far"
        self.caches = caches

    def _count(self, count: int) -> None:
        """First the whole prompt comes, then one token at a time."""
        if not self.known:
            assert count == self.prompt_length, (
                f"the first call brings the whole prompt, {self.prompt_length} tokens; this one brought {count}"
            )
            return
        assert count == 1, (
            f"{count} tokens were given to a model whose caches hold {len(self.known)}: since the last call only one "
            "is new, and what the caches hold must not go in again"
        )

    def _locate(self, positions: Any, count: int) -> None:
        """The new tokens stand behind those that the caches hold."""
        row = positions[0] if isinstance(positions, list) else positions
        check_stops([row])
        places = list(range(row.start or 0, row.stop)) if isinstance(row, slice) else self.lab.numpy(row)
        expected = list(range(len(self.known), len(self.known) + count))
        assert [int(place) for place in np.ravel(places)] == expected, (
            f"the caches hold {len(self.known)} tokens, so the next stand at {_span(expected)}; "
            f"the positions given are {_span([int(place) for place in np.ravel(places)])}"
        )


def check_stops(positions: Iterable[Any]) -> None:
    """Check that each slice says where it stops."""
    for row in positions:
        stops = not isinstance(row, slice) or row.stop is not None
        assert stops, f"the positions are {row}: a slice of positions needs a stop"


def _span(places: list[int]) -> str:
    if len(places) < 3:
        return " and ".join(map(str, places)) or "none"
    return f"{places[0]} to {places[-1]}"
