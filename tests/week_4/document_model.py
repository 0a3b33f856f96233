"""Models for document prompts: one that notes who sees whom, and the float64 model of Week 1 under any mask."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from week_1 import numpy_model as oracle

from coursekit.check import CheckFailed

V = 13
ROOM = 256  # tokens that a run may have in all


class NotingModel:
    """A model that answers with `script`, and notes of each run what came in and which tokens the caches showed.

    `runs` holds the token ids and the positions of each run; `seen[layer]` holds, for each token in turn, the tokens
    that it saw in this layer; `head_rows` holds how many rows each call of `logits` had.
    """

    def __init__(
        self,
        lab: Any,
        script: Sequence[int],
        max_positions: int = 60,
        num_layers: int = 2,
        dtype: str = "float32",
    ) -> None:
        self.lab = lab
        self.script = list(script)
        self.config = SimpleNamespace(max_positions=max_positions, num_layers=num_layers)
        self.embedding = SimpleNamespace(weight=lab.array(np.zeros((V, 3)), dtype))
        self.dtype = dtype
        self.runs: list[tuple[list[int], list[int]]] = []
        self.seen: list[list[list[int]]] = [[] for _ in range(num_layers)]
        self.head_rows: list[int] = []
        self._caches: list[Any] = []

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        """States [1, L, 2]: of the last token, 1 and the number of this run; of the others, 0."""
        assert "int" in self.lab.dtype(tokens), f"token ids must be integers, not {self.lab.dtype(tokens)}"
        ids = self.lab.numpy(tokens)
        assert ids.ndim == 2, f"the model takes token ids [B, L]; these are {list(ids.shape)}"
        assert len(ids) == 1, f"one sequence is one row; these are {len(ids)}"
        assert caches is not None, "the model was run without caches"
        layers = self.config.num_layers
        assert len(caches) == layers, f"{len(caches)} caches were given for {layers} layers"
        assert len(set(map(id, caches))) == layers, "layers share a cache: each layer needs one of its own"
        self._caches = self._caches or list(caches)
        same = all(old is new for old, new in zip(self._caches, caches, strict=True))
        assert same, f"run {len(self.runs) + 1} has other caches than the first, which hold the prompt"
        self.runs.append((ids[0].tolist(), self._places(positions)))
        for layer, cache in enumerate(caches):
            self._look(layer, cache, ids.shape[1])
        states = np.zeros((1, ids.shape[1], 2))
        states[0, -1] = 1, len(self.runs) - 1
        return self.lab.array(states)

    def logits(self, hidden: Any) -> Any:
        """Scores [..., V]: the script's token stands out in the last row, token V − 1 in any other."""
        states = self.lab.numpy(hidden)
        self.head_rows.append(states.size // 2)
        return self.lab.array(np.apply_along_axis(self._scores, -1, states))

    def _scores(self, state: np.ndarray) -> np.ndarray:
        scores, run = np.sin(np.arange(V) + state[1]), int(state[1])
        scores[self.script[run] if state[0] and run < len(self.script) else V - 1] += 5
        return scores

    def _look(self, layer: int, cache: Any, count: int) -> None:
        """Let the new tokens attend with equal scores: what a token gets tells which tokens it sees."""
        known = len(self.seen[layer])
        if known + count > ROOM:
            raise CheckFailed(f"the model was run on more than {ROOM} tokens: does the output end?")
        mask = getattr(cache, "mask", None)
        if mask is not None and self.lab.dtype(mask) != self.dtype:
            raise CheckFailed(
                f"the mask of a cache is {self.lab.dtype(mask)}, and the model is {self.dtype}: "
                "the mask has the dtype of the array that `document_mask` gets as `like`"
            )
        values = np.zeros((1, 1, count, ROOM))
        values[0, 0, np.arange(count), known + np.arange(count)] = 1
        zeros, given = (self.lab.array(each, self.dtype) for each in (np.zeros(values.shape), values))
        out = self.lab.numpy(cache.attend(zeros, zeros, given, 1.0))[0, 0]
        assert not np.isnan(out).any(), "a token sees no token at all, not even itself"
        self.seen[layer] += [np.flatnonzero(row).tolist() for row in out]

    def _places(self, positions: Any) -> list[int]:
        """The positions of one row, given in any of the three forms."""
        row = positions[0] if isinstance(positions, list) else positions
        assert not isinstance(row, int), "positions are an integer array, or a slice: a list holds slices"
        if isinstance(row, slice):
            return list(range(row.start or 0, row.stop))
        assert "int" in self.lab.dtype(row), f"positions must be integers, not {self.lab.dtype(row)}"
        return self.lab.numpy(row).reshape(-1).tolist()


def all_logits(family: str, ids: Sequence[int], positions: Sequence[int], sees: np.ndarray) -> np.ndarray:
    """[L, V] from one run over all the tokens, where row q of ``sees`` says which tokens q attends to."""
    tensors = oracle.random_tensors(family)
    x = tensors["embedding.weight"][list(ids)]
    for i in range(oracle.LAYERS):
        block = f"blocks.{i}"
        normed = oracle.rms_norm_rows(x, tensors[f"{block}.attention_norm.weight"])
        x = x + attention(tensors, block, normed, positions, sees)
        normed = oracle.rms_norm_rows(x, tensors[f"{block}.mlp_norm.weight"])
        x = x + np.stack([oracle.mlp(tensors, block, row) for row in normed])
    return oracle.logits(tensors, oracle.rms_norm_rows(x, tensors["norm.weight"]))


def attention(
    tensors: dict[str, np.ndarray], block: str, x: np.ndarray, positions: Sequence[int], sees: np.ndarray
) -> np.ndarray:
    """Tokens [L, E] → [L, E], one token and one head after the other."""
    parts = [oracle.project(tensors, block, row) for row in x]
    turned = [
        [oracle.rotate(head, place) for head in part[1]] for part, place in zip(parts, positions, strict=True)
    ]
    keys, values = np.stack(turned), np.stack([part[2] for part in parts])
    out, share = [], oracle.H // oracle.HKV
    for (query, _, _), place, row in zip(parts, positions, sees, strict=True):
        heads = [
            oracle.attend(
                oracle.rotate(query[h], place), keys[row, h // share], values[row, h // share], oracle.D**-0.5
            )
            for h in range(oracle.H)
        ]
        out.append(tensors[f"{block}.attention_out.weight"] @ np.concatenate(heads))
    return np.stack(out)
