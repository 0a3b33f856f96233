"""The numbers that the tests of many days start from."""

from __future__ import annotations

import numpy as np


def as_float32(x: np.ndarray) -> np.ndarray:
    """The numbers that the learner's code will see, in float64 for the oracle."""
    return x.astype(np.float32).astype(np.float64)


def normal(seed: int, *shape: int) -> np.ndarray:
    """Signed random numbers that float32 holds exactly, so that both sides start from the same ones."""
    return as_float32(np.asarray(np.random.default_rng(seed).normal(size=shape)))
