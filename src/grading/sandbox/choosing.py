"""Finds the best isolation that works here: not by what is installed, but by trying to get out of it."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from coursekit.errors import CourseError
from grading.sandbox import trial
from grading.sandbox.bubblewrap import Bubblewrap
from grading.sandbox.isolation import Isolation
from grading.sandbox.landlock import LandlockAndSeccomp
from grading.sandbox.limits import Limits, Rooms
from grading.sandbox.limits_only import LimitsOnly

ISOLATIONS: tuple[type[Isolation], ...] = (Bubblewrap, LandlockAndSeccomp)
"""Best first; those that keep a process from files, network and other processes."""

_NUMBERS_INSIDE = 9
_LIMITS = Limits(cpu_seconds=30, seconds=30)


def choose(without: bool = False) -> Isolation:
    """The best isolation that works here.

    Args:
        without: take limits only where there is none.

    Raises:
        CourseError: there is none, with the reason for each.
    """
    reasons = []
    for kind in ISOLATIONS:
        isolation = kind()
        reason = why_not(isolation)
        if reason is None:
            return isolation
        reasons.append(f"{isolation.name}: {reason}")
    if without:
        limits_only = LimitsOnly()
        reason = limits_only.missing()
        if reason is None:
            return limits_only
        reasons.append(f"{limits_only.name}: {reason}")
    raise CourseError("there is no isolation for learners' code here. " + "; ".join(reasons))


def by_name(name: str) -> Isolation:
    """The isolation of a name that :func:`choose` has found.

    Raises:
        CourseError: there is none of that name.
    """
    kinds: tuple[type[Isolation], ...] = (*ISOLATIONS, LimitsOnly)
    for kind in kinds:
        if kind.name == name:
            return kind()
    raise CourseError(f"there is no isolation {name!r}")


def why_not(isolation: Isolation) -> str | None:
    """Why an isolation can't be used here, or ``None``: it is tried, by a process that tries to get out."""
    if reason := isolation.missing():
        return reason
    with (
        tempfile.TemporaryDirectory() as name,
        socket.create_server(("127.0.0.1", 0)) as server,
        _another_process() as process,
    ):
        outside, scratch = Path(name) / "outside", Path(name) / "scratch"
        outside.write_text("a file that is in none of the rooms\n")
        scratch.mkdir()
        source = Path(trial.__file__).read_text("utf-8")
        aims = [str(outside), str(server.getsockname()[1]), str(process)]
        command = [sys.executable, "-I", "-S", "-c", source, *aims]
        try:
            with isolation.start(command, Rooms((), scratch), _LIMITS, {}) as confined:
                confined.wait()
        except CourseError as error:
            return str(error)
    said = " ".join(confined.output().split())
    return None if said == trial.NOTHING else f"it doesn't keep its promises: {said or confined.why_ended()}"


@contextmanager
def _another_process() -> Iterator[int]:
    """The number of a process to reach for; above those that a process in a namespace of its own has itself."""
    with ExitStack() as started:
        while True:
            process = started.enter_context(
                subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
            )
            started.callback(process.kill)
            if process.pid > _NUMBERS_INSIDE:
                break
        yield process.pid
