"""No isolation but limits: for systems that have none of the others."""

from __future__ import annotations

import sys

from grading.sandbox.isolation import Isolation
from grading.sandbox.limits import Limits, Rooms
from grading.sandbox.plan import Entry, Plan


class LimitsOnly(Isolation):
    """The process can read, write, reach and signal all that the user can; only what it uses is bounded, and all
    that it has started is ended with it (on macOS: all that stays in its session)."""

    name = "limits only"

    def missing(self) -> str | None:
        if sys.platform == "win32":
            return "Windows has no limits for processes: grade in WSL, or in a container"
        return None

    def _plan(self, entry: Entry, rooms: Rooms, limits: Limits) -> Plan:
        rooms.places()  # the same errors as with isolation
        return Plan(entry=entry, limits=limits, scratch=entry.folder)
