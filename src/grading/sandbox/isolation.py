"""The ways to shut a process in: what they have in common."""

from __future__ import annotations

import math
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from coursekit.errors import CourseError
from grading.sandbox import tree
from grading.sandbox.confined import Confined
from grading.sandbox.limits import Limits, Rooms, named_and_real
from grading.sandbox.plan import Entry, Plan

# What a Python with compiled libraries needs of a system: the loader, libraries, programs that find libraries,
# time zones; and the headers of a C++ compiler, which runs kernels in Metal's language.
_SYSTEM = (
    "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32",
    "/usr/libexec", "/usr/bin", "/usr/sbin", "/usr/include", "/usr/local/lib", "/usr/share/zoneinfo",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime",
    "/sys/devices/system/cpu", "/sys/devices/system/node",
)  # fmt: skip
_SPARE_PROCESSES = 1000  # that the user's other programs may start meanwhile
_SHARED_PREFIXES = (Path("/"), Path("/usr"), Path("/usr/local"))  # more than Python lives there


class Isolation(ABC):
    """One way to shut a process in."""

    name: str
    """What is in force, for reports."""

    @abstractmethod
    def missing(self) -> str | None:
        """Why it can't be had here, in one line, or ``None``: found without starting anything."""

    @abstractmethod
    def _plan(self, entry: Entry, rooms: Rooms, limits: Limits) -> Plan:
        """How to start a command. The entry has no protection yet but its limits."""

    def start(
        self,
        command: Sequence[str],
        rooms: Rooms,
        limits: Limits,
        environment: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ) -> Confined:
        """Start a command, shut in. It runs in the scratch folder, with nothing to read on its standard input.

        Args:
            command: a program's path, or its name on this process's PATH, and its arguments.
            rooms: where it may read and write.
            limits: what it may use.
            environment: all of its environment variables.
            pass_fds: file descriptors of this process that it gets under the same numbers; they stay open here.

        Raises:
            CourseError: there is no such program, or it can't be started, or not shut in.
        """
        entry = Entry(
            command=(_program(command), *command[1:]),
            environment=dict(environment),
            folder=str(rooms.scratch.resolve()),
            limits=self._resource_limits(limits),
        )
        plan = self._plan(entry, rooms, limits)
        return Confined(replace(plan, pass_fds=tuple(pass_fds)))

    def _resource_limits(self, limits: Limits) -> dict[str, int]:
        """What the kernel holds each single process to, by names of the module ``resource``.

        For memory it is what a process may write to (DATA), not its addresses (AS): torch and Numba's compiler
        reserve far more of these than they use.
        """
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_DATA": limits.memory,
            "RLIMIT_CPU": math.ceil(limits.cpu_seconds) + 2,  # after the guard, which can say why
            "RLIMIT_NOFILE": limits.open_files,
            "RLIMIT_FSIZE": limits.scratch_bytes,
            "RLIMIT_MSGQUEUE": 0,
            # The user's other processes count, too; and the kernel doesn't hold root to it.
            "RLIMIT_NPROC": tree.threads_of_machine() + limits.processes + _SPARE_PROCESSES,
        }


def system_places() -> list[Path]:
    """What may always be read: the system's libraries and the environment of this Python."""
    python: list[Path] = []
    for prefix in {Path(sys.prefix), Path(sys.base_prefix)}:
        shared = prefix in _SHARED_PREFIXES
        python += [prefix / part for part in ("bin", "lib", "lib64")] if shared else [prefix]
    return [path for path in named_and_real([*map(Path, _SYSTEM), *python]) if path.exists()]


def _program(command: Sequence[str]) -> str:
    if not command:
        raise CourseError("there is no command to start")
    found = shutil.which(command[0])
    if found is None:
        raise CourseError(f"can't start {command[0]}: there is no such program")
    return os.path.abspath(found)
