"""How many connections a server may hold (given code, Day 3.7)."""

from __future__ import annotations

import sys

MOST = 4096
"""Connections, where the system would allow more."""


def most_connections() -> int:
    """Half of the files that this process may have open, a connection being one; the other half is for all the rest.

    Without this bound, connections that come when no file is left are neither served nor refused.
    """
    if sys.platform == "win32":  # it has no such limit
        return MOST
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft == resource.RLIM_INFINITY else max(1, min(MOST, soft // 2))
