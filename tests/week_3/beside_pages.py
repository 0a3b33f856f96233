"""What lies in pages, read beside the learner's code in one go."""

from __future__ import annotations

from typing import Any

import numpy as np

from coursekit import arrays
from coursekit.beside import beside


@beside
def arrays_of(meta: Any, names: tuple[str, ...], *more: Any) -> tuple[np.ndarray, ...]:
    """Copies of some arrays of a step's metadata, by name, and of further arrays."""
    return tuple(arrays.to_numpy(each) for each in (*(getattr(meta, name) for name in names), *more))


@beside
def places_of(caches: Any, kind: type) -> tuple[tuple[bool, str, Any, Any], ...]:
    """Of each layer's cache: whether it is one of this kind, the name of its class, its layer and its metadata."""
    told: list[tuple[bool, str, Any, Any]] = []
    for cache in caches:
        fits = isinstance(cache, kind)
        parts = (cache.layer, cache.meta) if fits else (None, None)
        told.append((fits, type(cache).__name__, *parts))
    return tuple(told)
