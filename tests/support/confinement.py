"""Runs small programs shut in, for the tests of the sandbox."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from coursekit.errors import CourseError
from grading.sandbox.bubblewrap import Bubblewrap
from grading.sandbox.choosing import choose, why_not
from grading.sandbox.confined import Confined
from grading.sandbox.isolation import Isolation
from grading.sandbox.landlock import LandlockAndSeccomp
from grading.sandbox.limits import MIB, Limits, Rooms
from grading.sandbox.limits_only import LimitsOnly

CLOSED: tuple[type[Isolation], ...] = (Bubblewrap, LandlockAndSeccomp)
EVERY: tuple[type[Isolation], ...] = (*CLOSED, LimitsOnly)
SMALL = Limits(
    memory=400 * MIB,
    cpu_seconds=20,
    seconds=40,
    processes=60,
    open_files=64,
    scratch_bytes=50 * MIB,
    scratch_files=300,
    output_bytes=4000,
)


def usable(kind: type[Isolation]) -> Isolation:
    """The isolation; the test is skipped, with the reason, where it can't be had."""
    if reason := _reason(kind):
        pytest.skip(f"{kind.name} can't be used here: {reason}")
    return kind()


@cache
def _reason(kind: type[Isolation]) -> str | None:
    return kind().missing() if kind is LimitsOnly else why_not(kind())


@cache
def no_isolation() -> str:
    """Why the grader can't shut learners' code in here; empty where it can."""
    try:
        choose()
    except CourseError as error:
        return str(error)
    return ""


def start(
    isolation: Isolation,
    code: str,
    scratch: Path,
    *,
    arguments: Sequence[str] = (),
    limits: Limits = SMALL,
    environment: Mapping[str, str] | None = None,
    read: Sequence[Path] = (),
    pass_fds: Sequence[int] = (),
) -> Confined:
    """Start Python code, shut in."""
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-I", "-c", code, *arguments]
    return isolation.start(command, Rooms(tuple(read), scratch), limits, environment or {}, pass_fds)


def run(isolation: Isolation, code: str, scratch: Path, **options: object) -> Confined:
    """The same; wait for its end."""
    with start(isolation, code, scratch, **options) as confined:  # type: ignore[arg-type]
        assert confined.wait(100)
    return confined


@contextmanager
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user that is not shut in, and does nothing."""
    waits = [sys.executable, "-I", "-S", "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()
