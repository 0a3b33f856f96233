"""Both ends of a link in one process: the learner's side is an object whose attributes the grader's side sees."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from grading.link.end import End
from grading.link.operations import Granted, Operations

NAMES = frozenset({"tell", "value", "items", "run", "missing", "fail"})
"""Names of attributes that the learner's side may read on the grader's objects."""


@contextmanager
def linked(code: Any, lies: dict[str, Callable[..., Any]] | None = None) -> Iterator[tuple[Any, End]]:
    """What stands for `code` on the grader's side, and the grader's end.

    Args:
        code: the learner's.
        lies: operations of the learner's side in place of the true ones, by name.
    """
    down, up = os.pipe(), os.pipe()
    there = End(
        os.fdopen(down[0], "rb", buffering=0),
        os.fdopen(up[1], "wb"),
        Operations({"code": lambda: code, **(lies or {})}),
        grader=False,
    )
    server = threading.Thread(target=there.serve)
    server.start()
    here = End(os.fdopen(up[0], "rb", buffering=0), os.fdopen(down[1], "wb"), Granted(NAMES), grader=True)
    try:
        yield here.call("code"), here
    finally:
        here.close()
        server.join(10)
        there.close()
