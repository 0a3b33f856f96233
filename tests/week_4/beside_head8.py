"""The head of Day 4.7's models on as many threads as Numba says, where the learner's code is."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from coursekit.beside import beside
from coursekit.checking.kernel_run import run_method_as_python


@beside
def passes_with_threads(head: Any, x: Any, threads: int) -> int:
    """How many passes of `prange` loops a head's call makes, as Python, where Numba has so many threads."""
    passes, module = 0, sys.modules[type(head).__module__]

    def one_more() -> None:
        nonlocal passes
        passes += 1

    def said() -> int:
        return threads

    with ExitStack() as stack:
        stack.enter_context(patch("numba.get_num_threads", said))
        stack.enter_context(patch.object(module, "get_num_threads", said, create=True))
        run_method_as_python(head, "__call__", x, deep=True, spread=False, before_pass=one_more)
    return passes
