"""The last step before the learner's code: this process gives up what it may not have, then becomes the command.

Its text is run by a bare Python (``-I -S -c``) inside of the isolation, so it imports nothing but the standard
library, and sandlock where Landlock is to be used. The only argument is JSON; see
:class:`grading.sandbox.plan.Entry`.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from typing import Any

_SET_PARENT_DEATH_SIGNAL, _DROP_FROM_BOUNDING_SET = 1, 24
_SET_SECCOMP, _SECCOMP_FILTER, _SET_NO_NEW_PRIVILEGES = 22, 2, 38
_CAPABILITIES = 64  # more than there are


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def main() -> None:
    """Enter, and never return. What goes wrong is written to the pipe ``ready`` after a "-"; a "+" says that
    nothing has."""
    entry = json.loads(sys.argv[1])
    ready = entry["ready"]
    try:
        os.set_inheritable(ready, False)
        _give_up(entry)
        os.write(ready, b"+")
        os.execve(entry["command"][0], entry["command"], entry["environment"])
    except BaseException as error:
        os.write(ready, b"-" + f"{type(error).__name__}: {error}".encode(errors="replace"))
        os._exit(127)


def _give_up(entry: dict[str, Any]) -> None:
    os.chdir(entry["folder"])
    os.umask(0o077)
    os.nice(19)  # so that the guard comes first, also before a thousand processes
    for name, limit in entry["limits"].items():
        _limit(getattr(resource, name, None), limit)
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where memory ends, this process goes first
    _control(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.geteuid() == 0:
        _drop_capabilities()
    _control(_SET_NO_NEW_PRIVILEGES, 1)
    if entry["landlock"] is not None:
        _confine(entry["landlock"])
    if entry["filter"] is not None:
        _filter(bytes.fromhex(entry["filter"]))


def _limit(kind: int | None, limit: int) -> None:
    if kind is None:
        return
    hard = resource.getrlimit(kind)[1]
    value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (OSError, ValueError):
        if sys.platform == "linux":  # macOS knows some limits by name only
            raise


def _drop_capabilities() -> None:
    """What root may do beyond its files: after this, the command starts without it."""
    for capability in range(_CAPABILITIES):
        with contextlib.suppress(OSError):
            _control(_DROP_FROM_BOUNDING_SET, capability)


def _confine(rooms: dict[str, Any]) -> None:
    sys.path.append(rooms["library"])
    os.environ.setdefault("HOME", "/")  # sandlock asks for it, and a user of a container may have none
    import sandlock

    sandlock.confine(sandlock.Sandbox(fs_readable=rooms["read"], fs_writable=rooms["write"]))


def _filter(instructions: bytes) -> None:
    program = _Program(len(instructions) // 8, instructions)
    _control(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.addressof(program))


def _control(option: int, *values: int) -> None:
    """The system call prctl."""
    library = ctypes.CDLL(None, use_errno=True)
    padded = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    if library.prctl(ctypes.c_int(option), *padded) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


if __name__ == "__main__":
    main()
