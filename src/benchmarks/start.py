"""A ladder of Week 4: from the start of a program to its first token, part by part, in fresh processes (4.7)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.ladder import Bar, Ladder, Quantity
from benchmarks.rounds import Case, Values
from benchmarks.week_2 import GetModel
from benchmarks.written import require_day
from coursekit.errors import CourseError

LAST_LINES = 8

START = Quantity("start", "s", places=2)
PARTS = {
    "python": "Python",
    "torch": "torch",
    "imports": "imports",
    "weights": "weights",
    "tokenizer": "tokenizer",
    "ready": "engine",
    "first": "token",
}
"""Which part ends when the process says so, and what its column is called."""
KINDS: dict[str, tuple[str, tuple[int, int]]] = {
    "torch": ("import torch, nothing else", (4, 6)),
    "served": ("the engine, float32 (4.6)", (4, 6)),
    "fast": ("the fast engine (4.7)", (4, 7)),
}
"""What is started: label, and the day whose code it needs, or the first engine that it is compared with."""

LADDERS = (
    Ladder(
        "start",
        "From the start of a program to its first token; seconds, and those of each part",
        (START, *(Quantity(name, heading, places=2) for name, heading in PARTS.items())),
    ),
)

BARS = (
    Bar(
        "importing torch takes half of the fast engine's start at least",
        "start-torch",
        "start-fast",
        START,
        0.5,
    ),
)


def cases(model: GetModel, text: Sequence[int]) -> Iterator[Case]:
    """Each kind of start; the run to warm up brings files into memory, and compiles what was never compiled.

    Args:
        model: not called: each process loads its own.
        text: not used.
    """
    for kind, (label, day) in KINDS.items():
        yield Case(f"start-{kind}", "start", label, partial(_run, kind, day), 1)


def _run(kind: str, day: tuple[int, int], tokens: int) -> Values:
    require_day(day)
    return time_parts(command(kind))


def command(kind: str) -> list[str]:
    """How a process is started that says when each part is done."""
    return [sys.executable, "-m", "benchmarks.start_parts", kind]


def time_parts(words: Sequence[str]) -> Values:
    """Start a process, and take the time whenever it says on a line that a part is done.

    Returns:
        the seconds of each part, 0 for one that it did not come to, and of all together as "start".

    Raises:
        CourseError: it has failed, with the last that it said.
    """
    seconds = dict.fromkeys(PARTS, 0.0)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        started = before = time.perf_counter()
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=said, text=True, encoding="utf-8"
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    now = time.perf_counter()
                    if line.strip() in seconds:  # not what a library prints
                        seconds[line.strip()] = now - before
                        before = now
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            said.seek(0)
            last = "\n".join(said.read().rstrip().splitlines()[-LAST_LINES:])
            raise CourseError(f"the start has failed with exit code {process.returncode}:\n{last}")
    return {"start": before - started, **seconds}
