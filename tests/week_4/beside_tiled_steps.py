"""Day 4.7's attention by tiles as Python, where the learner's code is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from coursekit.beside import beside
from coursekit.checking.kernel_run import run_as_python


@contextmanager
def nan_in_empty() -> Iterator[None]:
    """Meanwhile `np.empty` gives NaN, as it may at any time."""
    empty = np.empty

    def filled(*size: Any, **options: Any) -> np.ndarray:
        array = empty(*size, **options)
        array[...] = np.nan if array.dtype.kind == "f" else -(10**9)
        return array

    with patch.object(np, "empty", filled):
        yield


@beside
def attend_as_python(attend: Any, *arguments: Any) -> None:
    """Call `attend`; what it makes is full of NaN at first."""
    __tracebackhide__ = True
    with nan_in_empty():
        run_as_python(attend, *arguments, deep=True)
