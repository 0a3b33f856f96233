"""Tries to get out of an isolation, and prints what it could do. Run as a program of its own, by a bare Python.

Arguments: a file outside of the rooms, the port of a server on 127.0.0.1, the number of a process.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable

NOTHING = "could do nothing"


def main() -> None:
    file, port, process = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tries: dict[str, Callable[[], object]] = {
        "read a file": lambda: open(file).close(),
        "write a file": lambda: open(file, "a").close(),
        "change a file's mode": lambda: os.chmod(file, 0o600),
        "connect to a server": lambda: socket.create_connection(("127.0.0.1", port), 5).close(),
        "signal another process": lambda: os.kill(process, 0),
        "read another process's memory": lambda: open(f"/proc/{process}/mem", "rb").close(),
        "use another's limits": lambda: _limits_of(process),
    }
    could = [what for what, attempt in tries.items() if _works(attempt)]
    print("could " + ", ".join(could) if could else NOTHING)


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _limits_of(process: int) -> None:
    import resource

    resource.prlimit(process, resource.RLIMIT_CORE)


if __name__ == "__main__":
    main()
