"""How Day 1.7 chooses a token, in float64 NumPy and plain loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def probabilities(logits: np.ndarray) -> np.ndarray:
    """softmax of one row [V]."""
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def best_first(logits: np.ndarray) -> list[int]:
    """The ids by falling score; of equal scores the lower id first."""
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def only(logits: np.ndarray, ids: Iterable[int]) -> np.ndarray:
    """−inf everywhere but at `ids`."""
    return np.where(np.isin(np.arange(len(logits)), list(ids)), logits, -np.inf)


def penalize(logits: np.ndarray, token_ids: Iterable[int], penalty: float) -> np.ndarray:
    out = logits.copy()
    for i in set(token_ids):
        out[i] = logits[i] / penalty if logits[i] > 0 else logits[i] * penalty
    return out


def top_k(logits: np.ndarray, k: int) -> np.ndarray:
    return only(logits, best_first(logits)[:k]) if k else logits


def top_p(logits: np.ndarray, p: float) -> np.ndarray:
    if p == 1:
        return logits
    share, kept, total = probabilities(logits), [], 0.0
    for i in best_first(logits):
        if total >= p:
            break
        kept.append(i)
        total += share[i]
    return only(logits, kept)


def min_p(logits: np.ndarray, limit: float) -> np.ndarray:
    share = probabilities(logits)
    return only(logits, [i for i in range(len(logits)) if share[i] >= limit * share.max()])


def draw(logits: np.ndarray, uniform: float) -> int:
    """The first id at which the running sum of the probabilities exceeds `uniform`."""
    total = 0.0
    for i, share in enumerate(probabilities(logits)):
        total += share
        if total > uniform:
            return i
    return int(np.flatnonzero(np.isfinite(logits))[-1])


STEPS = ("penalty", "temperature", "top-k", "top-p", "min-p")


def filtered(
    logits: np.ndarray, ids: Iterable[int], params: dict[str, Any], steps: Iterable[str]
) -> np.ndarray:
    """The scores after these steps, in their order."""
    for step in steps:
        if step == "penalty":
            logits = penalize(logits, ids, params.get("repetition_penalty", 1.0))
        elif step == "temperature":
            logits = (logits - logits.max()) / params["temperature"]
        elif step == "top-k":
            logits = top_k(logits, params.get("top_k", 0))
        elif step == "top-p":
            logits = top_p(logits, params.get("top_p", 1.0))
        else:
            logits = min_p(logits, params.get("min_p", 0.0))
    return logits


def tokens(
    rows: Sequence[np.ndarray],
    prompt: Sequence[int],
    numbers: Sequence[float],
    params: dict[str, Any],
    steps: Iterable[str] = STEPS,
    output: Sequence[int] | None = None,
) -> list[int]:
    """The tokens drawn from one row of scores after another, one random number each.

    ``output`` is taken for the output so far; left out, the tokens themselves are.
    """
    drawn: list[int] = []
    for step, (logits, uniform) in enumerate(zip(rows, numbers, strict=False)):
        ids = [*prompt, *(drawn if output is None else output)[:step]]
        drawn.append(draw(filtered(logits, ids, params, steps), uniform))
    return drawn
