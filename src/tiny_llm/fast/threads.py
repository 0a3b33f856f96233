"""Threads that don't get in each other's way (Day 4.7, given code)."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_SOFT = 1  # omp_pause_soft: what was set stays set


def release_threads() -> None:
    """End the threads that have helped this one so far; they are started again when they are needed.

    Each thread that computes has helpers of its own. Where there are more of them than cores, OpenMP lets none wait
    for work awake, and a step takes twice as long. So a thread that has loaded a model, and won't compute any more,
    releases its helpers. Nothing happens where OpenMP isn't GNU's.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libgomp.so.1").omp_pause_resource_all(_SOFT)
