"""Why a confined process ended, in words."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum

from grading.sandbox.limits import GIB, MIB, Limits


class Cause(StrEnum):
    """What ended it."""

    ITSELF = "itself"
    KILLED = "killed"
    MEMORY = "memory"
    CPU = "cpu"
    SECONDS = "seconds"
    PROCESSES = "processes"
    SCRATCH = "scratch"
    FILES = "files"
    HIDDEN = "hidden"
    LOST = "lost"


@dataclass(frozen=True)
class Ending:
    """``code`` is the exit code of the command, ``signal`` the number of the signal that ended it; ``None``
    where there is none."""

    cause: Cause
    code: int | None = None
    signal: int | None = None


def in_words(ending: Ending, limits: Limits) -> str:
    """ "ended itself with exit code 3", "was ended: it used more than 2 GiB of memory"."""
    if ending.cause == Cause.ITSELF:
        if ending.signal is None:
            return f"ended itself with exit code {ending.code}"
        return f"was ended by the signal {_name(ending.signal)}"
    return f"was ended: {_reason(ending.cause, limits)}"


def _reason(cause: Cause, limits: Limits) -> str:
    return {
        Cause.KILLED: "it was no longer needed",
        Cause.MEMORY: f"it used more than {_size(limits.memory)} of memory",
        Cause.CPU: f"it used more than {limits.cpu_seconds:g} s of CPU time",
        Cause.SECONDS: f"it took more than {limits.seconds:g} s",
        Cause.PROCESSES: f"it had more than {limits.processes:,} processes and threads",
        Cause.SCRATCH: f"it wrote more than {_size(limits.scratch_bytes)} into its folder",
        Cause.FILES: f"it had more than {limits.scratch_files:,} files in its folder",
        Cause.HIDDEN: "it made a folder that can't be looked into",
        Cause.LOST: "the process that guards it was ended from outside",
    }[cause]


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def _size(count: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:,} bytes"
