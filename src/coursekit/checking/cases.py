"""A result and what was expected, as the search for a cause sees them, and how to speak of their axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Fewer different numbers than this agree with some pattern by chance.
FEWEST = 4


@dataclass(frozen=True)
class Axes:
    """How to speak of an array's axes: by the names given, or by number."""

    names: tuple[str, ...] | None
    labels: tuple[str, ...]

    @classmethod
    def of(cls, axes: str | None, ndim: int) -> Axes:
        """Axes named as in ``"B H L D"``; numbered when there are no names, or not as many as axes."""
        names = tuple(axes.split()) if axes else ()
        if len(names) == ndim and ndim:
            return cls(names, tuple(f"axis {name}" for name in names))
        return cls(None, tuple(f"axis {i}" for i in range(ndim)))


@dataclass(frozen=True)
class Case:
    """What a cause is looked for in; ``same`` compares within the test's tolerances, infinities included."""

    actual: np.ndarray
    expected: np.ndarray
    axes: Axes
    rtol: float
    atol: float

    def same(self, one: Any, other: Any) -> bool:
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape:
            return False
        with np.errstate(invalid="ignore"):
            return bool(np.allclose(one, other, self.rtol, self.atol, equal_nan=True))

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.actual).all() and np.isfinite(self.expected).all())

    @property
    def varied(self) -> bool:
        """Enough different numbers expected for a pattern to mean something."""
        return len(np.unique(self.expected)) >= FEWEST
