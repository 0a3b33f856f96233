"""Measures how long a call takes on the reader's machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from notebooks import settings

FEWEST = 3


def measure(function: Callable[..., Any], *arguments: Any, seconds: float = 0.5) -> float:
    """The median time of a call, in seconds; one call before them isn't counted.

    Args:
        function: what to call.
        arguments: of each call.
        seconds: for how long to call it; three calls at least. In a short run there is one call.
    """
    function(*arguments)
    times: list[float] = []
    fewest, end = FEWEST, time.perf_counter() + seconds
    if settings.short():
        fewest, end = 1, 0.0
    while len(times) < fewest or time.perf_counter() < end:
        began = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - began)
    return median(times)
