"""How many submissions this machine can grade at the same time, and how many threads each of them may have."""

from __future__ import annotations

import os
from pathlib import Path

from coursekit.machine import THREAD_VARIABLES, cores

MEMORY_FILE = Path("/proc/meminfo")
"""Linux's."""
MEMORY_OF_ONE = 3 << 30
"""Bytes: the tests and the learner's code each have torch, and often a model, in memory."""
LEAST_THREADS = 2
"""With a single one, a mistake in how threads share their work would not show."""


def default_jobs() -> int:
    """Half of the cores, and no more than there is memory for; at least 1."""
    return max(1, min(cores() // 2, _free_memory() // MEMORY_OF_ONE))


def threads_of_each(at_once: int) -> dict[str, str]:
    """Environment variables that share the cores among so many submissions: else each takes all of them, and they
    wait for one another. What the environment says already is not changed."""
    threads = max(LEAST_THREADS, cores() // at_once)
    return {name: os.environ.get(name, str(threads)) for name in THREAD_VARIABLES}


def _free_memory() -> int:
    """Bytes that programs can still get; half of all where the system tells only that, else enough for one."""
    try:
        lines = MEMORY_FILE.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return MEMORY_OF_ONE
