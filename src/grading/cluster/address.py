"""From `--scheduler ADDRESS` to what does the jobs there."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable

from coursekit.errors import CourseError
from grading.running.children import RunJobs

PACKAGE = "distributed"
_ADDRESS = re.compile(
    r"(?:(?P<protocol>[a-z]+)://)?(?P<host>[^\s/:]+|\[[0-9a-fA-F:.%\w]+\]):(?P<port>\d{1,5})"
)
_PROTOCOLS = ("tcp", "tls", "ws", "wss")


def on_cluster(address: str, say: Callable[[str], None]) -> RunJobs:
    """What does jobs on the workers of a Dask cluster.

    Args:
        address: the scheduler's, as ``dask scheduler`` shows it; without a protocol, it is TCP.
        say: shows the instructor a line.

    Raises:
        CourseError: it is no address, or the library is not installed.
    """
    found = _ADDRESS.fullmatch(address)
    if not found or (found["protocol"] or "tcp") not in _PROTOCOLS:
        raise CourseError(
            f"--scheduler {address!r} is no address: it looks like tcp://10.0.0.5:8786 or tls://10.0.0.5:8786"
        )
    if importlib.util.find_spec(PACKAGE) is None:
        raise CourseError(
            f"--scheduler needs the package {PACKAGE}: `pdm install -G cluster` installs it, here and at the workers"
        )
    from grading.cluster.dispatch import dispatch

    return functools.partial(dispatch, address if found["protocol"] else f"tcp://{address}", say)
