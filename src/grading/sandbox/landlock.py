"""Isolation by Landlock and seccomp: the kernel's own refusals, for which neither root nor namespaces are needed."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from grading.sandbox.isolation import Isolation, system_places
from grading.sandbox.limits import Limits, Rooms
from grading.sandbox.plan import Entry, Landlock, Plan
from grading.sandbox.system_calls import is_known, refusals

_READABLE = ("/proc/cpuinfo", "/proc/meminfo", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_WRITABLE = ("/dev/null",)


class LandlockAndSeccomp(Isolation):
    """Files outside of the rooms can't be opened (though that they exist can be seen); there are no sockets at
    all, not even to 127.0.0.1 within. The scratch folder lies on the disk: what is in it is counted several
    times a second."""

    name = "Landlock and seccomp (sandlock)"

    def missing(self) -> str | None:
        if sys.platform != "linux":
            return "Landlock is for Linux"
        if importlib.util.find_spec("sandlock") is None:
            return "the Python package sandlock is not installed"
        sandlock = _sandlock()
        has, needs = sandlock.landlock_abi_version(), sandlock.min_landlock_abi()
        if has < needs:
            return f"this kernel's Landlock is version {max(has, 0)}; version {needs} is needed (Linux 6.12)"
        return None if is_known() else f"the kernel's names for {os.uname().machine} are not known"

    def _plan(self, entry: Entry, rooms: Rooms, limits: Limits) -> Plan:
        readable = {*system_places(), *rooms.places(), *map(Path, _READABLE)}
        landlock = Landlock(
            read=tuple(sorted(str(path.resolve()) for path in readable)),
            write=(entry.folder, *_WRITABLE),
            library=str(Path(str(_sandlock().__file__)).parent.parent),
        )
        protected = replace(entry, landlock=landlock, filter=refusals(with_namespaces=False).hex())
        return Plan(entry=protected, limits=limits, scratch=entry.folder)


def _sandlock() -> ModuleType:
    """The package. It asks for a home when it is imported, and a user of a container may have none."""
    homeless = "HOME" not in os.environ
    os.environ.setdefault("HOME", "/")
    try:
        return importlib.import_module("sandlock")
    finally:
        if homeless:
            del os.environ["HOME"]
