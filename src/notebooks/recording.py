"""What the real model computes on a text, from the reference: for days before the model, too.

`python -m notebooks.recording TEXT FILE` is run in a process of its own, whose `tiny_llm` is the reference.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.running.import_path import Impl, choose_implementation


@dataclass(frozen=True)
class Recorded:
    """The stream and what attention is given in each layer, for one text of L tokens; float32.

    tokens: the text's pieces.
    stream: [2·layers + 1, L, E], as it comes to each norm: of block i's attention (2·i), of its MLP (2·i + 1), and
        the last one.
    query: [layers, H, L, D], rotated to its positions, as key is.
    key: [layers, Hkv, L, D]; value likewise.
    """

    tokens: tuple[str, ...]
    stream: np.ndarray
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray


@cache
def recorded(text: str) -> Recorded:
    """Run the reference's model over a text; it takes some seconds, and is kept for the next call.

    Raises:
        CourseError: it fails, with what it says.
    """
    course = Course.find()
    with tempfile.TemporaryDirectory(prefix="tiny-llm-recorded-") as folder:
        file = Path(folder) / "recorded.npz"
        done = subprocess.run(
            [sys.executable, "-m", __name__, text, str(file)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, _folders(course)))},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise CourseError(f"the reference's model did not run: {done.stderr.strip()[-500:]}")
        with np.load(file) as arrays:
            parts = (arrays[name] for name in ("stream", "query", "key", "value"))
            return Recorded(tuple(arrays["tokens"].tolist()), *parts)


def _folders(course: Course) -> list[Path]:
    return [course.solution().parent, Path(__file__).parents[1]]


def record(text: str, file: Path) -> None:
    """Run the model over the text and write the stream and what attention was given."""
    from tiny_llm.kv_cache import NoCache
    from tiny_llm.model import Transformer
    from tiny_llm.tokenizer import load_tokenizer
    from tiny_llm.weights import load_weights

    class Recorder(NoCache):
        def __init__(self) -> None:
            self.given: tuple[Any, ...] = ()

        def attend(self, query: Any, key: Any, value: Any, scale: float) -> Any:
            self.given = (query, key, value)
            return super().attend(query, key, value, scale)

    class Tap:
        """In the place of a norm, which all of the stream comes through."""

        def __init__(self, norm: Any) -> None:
            self.norm = norm

        def __call__(self, x: Any) -> Any:
            stream.append(x[0].numpy())
            return self.norm(x)

    import torch

    stream: list[np.ndarray] = []
    tokenizer, weights = load_tokenizer(), load_weights()
    ids = tokenizer.encode(text)
    caches = [Recorder() for _ in range(weights.config.num_layers)]
    model = Transformer(weights.config, weights)
    for block in model.blocks:
        tapped: Any = block
        tapped.attention_norm, tapped.mlp_norm = Tap(block.attention_norm), Tap(block.mlp_norm)
    tapped = model
    tapped.norm = Tap(model.norm)
    with torch.inference_mode():
        model.hidden(torch.tensor([ids]), slice(0, len(ids)), caches)
    parts = [np.stack([c.given[part][0].numpy() for c in caches]) for part in range(3)]
    tokens = np.array([tokenizer.decode([number]) for number in ids])
    np.savez(file, tokens=tokens, stream=np.stack(stream), query=parts[0], key=parts[1], value=parts[2])


if __name__ == "__main__":
    choose_implementation(Course.find(), Impl.SOLUTION)
    record(sys.argv[1], Path(sys.argv[2]))
