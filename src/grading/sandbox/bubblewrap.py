"""Isolation by bubblewrap: namespaces of its own for the process, its files, its network and its process numbers."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from grading.sandbox.isolation import Isolation, system_places
from grading.sandbox.limits import Limits, Rooms
from grading.sandbox.plan import Entry, Plan
from grading.sandbox.system_calls import is_known, refusals

_DEVICES = ("null", "zero", "full", "random", "urandom")
_NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup-try")
_OWN_PROCESSES = 4  # bubblewrap's, beside those of the command


class Bubblewrap(Isolation):
    """The strongest: what isn't in the rooms doesn't exist for the process. It has a network that leads nowhere
    (its own 127.0.0.1 works), and its scratch folder is in memory, of the allowed size, and gone when it ends."""

    name = "bubblewrap"

    def missing(self) -> str | None:
        if sys.platform != "linux":
            return "bubblewrap is for Linux"
        if shutil.which("bwrap") is None:
            return "there is no bwrap on the PATH: install the system's package bubblewrap"
        return None if is_known() else f"the kernel's names for {os.uname().machine} are not known"

    def _plan(self, entry: Entry, rooms: Rooms, limits: Limits) -> Plan:
        # Counted in the namespace alone; the kernel doesn't hold root to it.
        of_kernel = {**entry.limits, "RLIMIT_NPROC": limits.processes + _OWN_PROCESSES}
        return Plan(
            entry=replace(entry, filter=refusals(with_namespaces=True).hex(), limits=of_kernel),
            limits=limits,
            scratch=entry.folder,
            before=self._options(rooms, limits, entry.folder),
            private_scratch=True,
            shell_codes=True,
        )

    def _options(self, rooms: Rooms, limits: Limits, scratch: str) -> tuple[str, ...]:
        options = [shutil.which("bwrap") or "bwrap"]
        options += [f"--unshare-{kind}" for kind in _NAMESPACES]
        options += ["--uid", "65534", "--gid", "65534", "--hostname", "confined", "--cap-drop", "ALL"]
        options += ["--die-with-parent", "--new-session", "--clearenv"]
        for place in sorted({*system_places(), *rooms.places()}, key=lambda path: len(path.parts)):
            options += _show(place)
        options += ["--proc", "/proc"]
        for name in _DEVICES:
            options += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
        options += ["--symlink", "/proc/self/fd", "/dev/fd", "--symlink", scratch, "/dev/shm"]
        options += ["--size", str(limits.scratch_bytes), "--tmpfs", scratch]
        return (*options, "--remount-ro", "/", "--")


def _show(place: Path) -> list[str]:
    """The options that let a place be seen. Links in the root, as /lib on most systems, stay links."""
    if place.is_symlink() and place.parent == Path("/"):
        return ["--symlink", os.readlink(place), str(place)]
    return ["--ro-bind", str(place), str(place)]
