"""Stand-ins for a model and a tokenizer, all of whose answers are known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

V = 13


class ScriptedModel:
    """A model that continues a prompt of `prompt_length` tokens with `script`, and records its calls.

    `sequences` holds the ids of each call of `hidden`, `head_rows` how many rows each call of `logits` had.
    """

    def __init__(self, lab: Any, prompt_length: int, script: Sequence[int], max_positions: int = 40) -> None:
        self.lab = lab
        self.prompt_length = prompt_length
        self.script = list(script)
        self.config = SimpleNamespace(max_positions=max_positions)
        self.embedding = SimpleNamespace(weight=lab.array(np.zeros((V, 3))))
        self.sequences: list[list[int]] = []
        self.head_rows: list[int] = []

    def __call__(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        return self.logits(self.hidden(tokens, positions, caches))

    def hidden(self, tokens: Any, positions: Any, caches: Any = None) -> Any:
        """States [1, L, 3]: how many tokens there are up to this one, this token, the sum of them all."""
        assert "int" in self.lab.dtype(tokens), f"token ids must be integers, not {self.lab.dtype(tokens)}"
        ids = self.lab.numpy(tokens)
        assert ids.ndim == 2, f"the model takes token ids [B, L]; these are {list(ids.shape)}"
        assert len(ids) == 1, f"one sequence is one row; these are {len(ids)}"
        places = _places(self.lab, positions)
        assert places == list(range(ids.shape[1])), (
            f"there is no cache, so the whole sequence goes in, from position 0; {ids.shape[1]} came in, at {places}"
        )
        assert ids.shape[1] <= self.config.max_positions, "more tokens than the model has positions"
        self.sequences.append(ids[0].tolist())
        row = ids[0].astype(np.float64)
        return self.lab.array(np.stack([np.arange(1.0, len(row) + 1), row, np.cumsum(row)], axis=1)[None])

    def logits(self, hidden: Any) -> Any:
        """Scores [..., V] for states [..., 3]."""
        states = self.lab.numpy(hidden)
        self.head_rows.append(states.size // 3)
        return self.lab.array(np.apply_along_axis(self.scores, -1, states))

    def scores(self, state: np.ndarray) -> np.ndarray:
        """The scores [V] after one state [3]: the script's token stands out, the others depend on the state."""
        scores = np.sin(np.arange(V) * (1 + state[1]) + state[2])
        step = int(state[0]) - self.prompt_length
        scores[self.script[step] if 0 <= step < len(self.script) else V - 1] += 5
        return scores


def _places(lab: Any, positions: Any) -> list[int]:
    """The positions of one row, given in any of the three forms."""
    row = positions[0] if isinstance(positions, list) else positions
    if isinstance(row, slice):
        return list(range(row.start or 0, row.stop))
    return lab.numpy(row).reshape(-1).tolist()


class ByteTokenizer:
    """Each id stands for some bytes; bytes that aren't whole characters decode to U+FFFD, as in real ones.

    `longest` is the greatest number of ids that were decoded at once.
    """

    def __init__(self, vocabulary: Sequence[bytes]) -> None:
        self.vocabulary = list(vocabulary)
        self.longest = 0

    def decode(self, ids: Sequence[int]) -> str:
        self.longest = max(self.longest, len(ids))
        return b"".join(self.vocabulary[i] for i in ids).decode("utf-8", errors="replace")

    def ids(self, *pieces: bytes) -> list[int]:
        return [self.vocabulary.index(piece) for piece in pieces]


class SpaceDroppingTokenizer(ByteTokenizer):
    """Drops a space in front of the first id, as tokenizers do that write each word with the space before it."""

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode(ids).removeprefix(" ")
