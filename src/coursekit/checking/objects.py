"""Questions about the learner's objects that only the process can answer in which they live."""

from __future__ import annotations

import copy
import dataclasses
import gc
import operator
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from coursekit import arrays
from coursekit.beside import beside


@beside
def weak(value: Any) -> Any:
    """A weak reference: called, it gives the object, or None once nothing holds it any more."""
    return weakref.ref(value)


@beside
def collect_garbage() -> None:
    """Free the objects that only hold each other."""
    gc.collect()


@beside
def copies(*values: Any) -> tuple[np.ndarray | None, ...]:
    """NumPy copies of arrays, as :func:`coursekit.arrays.to_numpy` gives them; None stays None."""
    return tuple(None if value is None else arrays.to_numpy(value) for value in values)


@beside
def replaced(value: Any, **changes: Any) -> Any:
    """A copy of a dataclass object in which some fields are others."""
    return dataclasses.replace(value, **changes)


@beside
def values_of(things: Iterable[Any], *names: str) -> list[tuple[Any, ...]]:
    """Attributes of some objects, by names such as "request.token_ids": a tuple for each object; lists are copies."""
    reads = [operator.attrgetter(name) for name in names]
    found = [[read(thing) for read in reads] for thing in things]
    return [tuple(list(value) if type(value) is list else value for value in values) for values in found]


@beside
def copied(value: Any) -> Any:
    """A copy of an object, which has the same parts."""
    return copy.copy(value)


@beside
def found_under(key: Any, other: Any) -> bool:
    """Whether a dictionary has under one key what was put there under the other."""
    return {key: True}.get(other, False)
