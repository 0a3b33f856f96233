"""Day 4.6's penalties and log-probabilities in float64 NumPy, and the samplers of a step beside those of Day 1.7."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def penalize(logits: np.ndarray, output: Sequence[int], presence: float, frequency: float) -> np.ndarray:
    """Lower the scores one token of the output after another."""
    scores = logits.astype(np.float64)
    for place, token in enumerate(output):
        scores[token] -= frequency + (presence if token not in output[:place] else 0)
    return scores


def penalty_suspects(
    logits: np.ndarray, output: Sequence[int], presence: float, frequency: float
) -> dict[str, Callable[[], np.ndarray]]:
    """What the usual mistakes give."""
    once, counts = np.zeros(len(logits)), np.bincount(output, minlength=len(logits))
    once[list(set(output))] = 1
    gives = {
        "presence is subtracted for each occurrence; once is enough": (presence + frequency) * counts,
        "frequency is subtracted once; it counts for each occurrence": (presence + frequency) * once,
        "presence and frequency are taken for each other": frequency * once + presence * counts,
        "presence is left out": frequency * counts,
        "frequency is left out": presence * once,
        "the scores are raised where they should be lowered": -presence * once - frequency * counts,
        "presence is subtracted from the tokens that are not in the output": presence * (1 - once)
        + frequency * counts,
        "presence is subtracted from all tokens": presence + frequency * counts,
        "frequency counts the occurrences after the first alone": presence * once
        + frequency * (counts - once),
        "frequency is divided by the length of the output": presence * once
        + frequency * counts / len(output),
        "the penalties of a negative score have the opposite effect; they are subtracted from any score": np.sign(
            logits
        )
        * (presence * once + frequency * counts),
        "a penalty below 0 is taken as its size; it raises the score": abs(presence) * once
        + abs(frequency) * counts,
        "a penalty below 0 is taken for 0; it raises the score": max(presence, 0) * once
        + max(frequency, 0) * counts,
    }
    right = presence * once + frequency * counts
    alike = [sum(np.array_equal(one, other) for other in gives.values()) for one in gives.values()]
    return {
        cause: lambda lowered=lowered: logits - lowered
        for (cause, lowered), count in zip(gives.items(), alike, strict=True)
        if count == 1 and not np.array_equal(lowered, right)
    }


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def best_first(logits: np.ndarray) -> list[int]:
    """The ids by falling score; of equal scores the lower id first."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))
