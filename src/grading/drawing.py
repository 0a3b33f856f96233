"""Draws the tests' random inputs anew, from a secret of the instructor's: memorized answers are wrong then."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

_BITS = 128


def number_of(secret: str) -> int:
    """A number of 128 bits that follows from the secret, and from which it can't be found."""
    return int.from_bytes(hashlib.sha256(secret.encode("utf-8")).digest()[: _BITS // 8], "big")


def draw_anew(secret: str) -> None:
    """From now on `np.random.default_rng` gives other numbers for a seed; they follow from the secret and the seed.

    Without a seed, or with a generator, it does what it always does.
    """
    original, number = np.random.default_rng, number_of(secret)

    def default_rng(seed: Any = None) -> np.random.Generator:
        if isinstance(seed, int | np.integer):
            return original([number, int(seed)])
        return original([number, *map(int, seed)] if isinstance(seed, list | tuple | np.ndarray) else seed)

    np.random.default_rng = default_rng
