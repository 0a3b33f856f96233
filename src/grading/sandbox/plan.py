"""What the guard is told: how to start a command and what to hold it to. Plain records, sent to it as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from grading.sandbox.limits import Limits


@dataclass(frozen=True)
class Landlock:
    """What a process may read, and what it may write to (paths); ``library`` is the folder that has sandlock."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    library: str


@dataclass(frozen=True)
class Entry:
    """What ``enter`` does inside of the isolation.

    ``limits`` are by the names of the module ``resource``; ``filter`` is a seccomp program in hexadecimal;
    ``ready`` the pipe that it reports to, set by the guard.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str
    limits: Mapping[str, int]
    landlock: Landlock | None = None
    filter: str | None = None
    ready: int = -1


@dataclass(frozen=True)
class Plan:
    """``before`` stands before the command that enters (bubblewrap with its options, or nothing).

    ``private_scratch``: the scratch folder is a file system of its own, which itself refuses more bytes than its
    size.
    ``shell_codes``: an exit code of 128 + N means signal N, as shells have it.
    """

    entry: Entry
    limits: Limits
    scratch: str
    before: tuple[str, ...] = ()
    private_scratch: bool = False
    shell_codes: bool = False
    pass_fds: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Plan:
        entry, landlock = data["entry"], data["entry"]["landlock"]
        return Plan(
            **{**data, "limits": Limits(**data["limits"])}
            | {"entry": Entry(**{**entry, "landlock": Landlock(**landlock) if landlock else None})}
        )
