"""Gate, only with `--long`: a million random steps of Week 4's engine, with its books checked after each."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from authoring.gates.children import ONE_THREAD
from authoring.gates.gate import Context, Findings
from authoring.progress import Meter
from coursekit.paths import ROOT_VARIABLE, Course

STEPS = 1_000_000
PER_LINE = 1000
"""Steps for which a child prints a line, a number."""
PER_SEED = 1_000_000
"""Trials from one seed to the next: a trial has more than one step."""


def long(context: Context, steps: int = STEPS) -> Findings:
    """Run trials one after the other, shared out over the workers; each stops at the first that fails.

    With the seed 0 they are the trials 0, 1, 2, …, with 1 those from ``PER_SEED`` on: two seeds have none in common.
    """
    workers, start = context.workers, context.seed * PER_SEED
    children: list[subprocess.Popen[str]] = []
    counted = threading.Lock()
    with Meter(context.console, "steps, in thousands", steps // PER_LINE) as meter:

        def follow(child: subprocess.Popen[str]) -> str:
            """Count the lines that say how far a child is; its other words."""
            assert child.stdout is not None
            words = []
            for line in child.stdout:
                if line.strip().isdigit():
                    with counted:
                        meter.advance()
                else:
                    words.append(line)
            child.wait()
            return "".join(words).strip()

        try:
            children += [
                _start(context.course, start + first, workers, steps // workers) for first in range(workers)
            ]
            with ThreadPoolExecutor(workers) as pool:
                ended = list(pool.map(follow, children))
        finally:
            for child in children:
                child.kill()
    problems = [words for child, words in zip(children, ended, strict=True) if child.returncode]
    return Findings(f"{steps:,} random steps, --seed {context.seed}", problems)


def _start(course: Course, first: int, stride: int, steps: int) -> subprocess.Popen[str]:
    numbers = ("--first", first, "--stride", stride, "--steps", steps)
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "shared.random_steps", *map(str, numbers)],
        cwd=course.tests,
        env={**os.environ, **ONE_THREAD, ROOT_VARIABLE: str(course.root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
