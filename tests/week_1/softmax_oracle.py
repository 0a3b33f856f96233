"""Softmax of one row of scores, in float64 NumPy."""

from __future__ import annotations

import numpy as np

HIDDEN = -np.inf


def weights_of(scores: np.ndarray) -> np.ndarray:
    """Softmax of one row of scores; zeros where all are hidden."""
    if np.all(scores == HIDDEN):
        return np.zeros_like(scores)
    exponentials = np.exp(scores - scores.max())
    return exponentials / exponentials.sum()
