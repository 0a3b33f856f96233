"""How much memory the tests may take: a runaway recursion or a list that grows for ever must not stop the machine.

Linux refuses what goes beyond the limit, and the test fails where it asked for it. It counts memory that a process
may write to (RLIMIT_DATA), not addresses, of which torch and Numba's compiler reserve more than they use. Where there
is no such limit, as on macOS, a thread looks at the largest amount that was ever resident, and ends the process.
Windows has neither.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import threading
import time
from typing import TextIO

if sys.platform != "win32":
    import resource

GIB = 1 << 30
LEAST, MOST = 4 * GIB, 8 * GIB
SHARE = 0.75
"""Of the machine's memory."""
PAUSE = 0.2
"""Seconds between two looks."""
GROWS = "does something grow without end, or is an array far larger than it should be?"
REFUSED = re.compile(r"can't allocate memory|[Uu]nable to allocate|std::bad_alloc")
TOO_LARGE = "used more than the"


def allowed() -> int:
    """Bytes that a run may take: three quarters of the machine's memory, but at least 4 GiB and at most 8."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return MOST
    return int(min(max(SHARE * machine, LEAST), MOST))


def keep_to(limit: int, faults: TextIO | None) -> None:
    """Hold this process to ``limit`` bytes from now on; ``faults`` is told where it is ended for them."""
    if sys.platform == "linux":
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        soft = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    elif sys.platform != "win32" and faults is not None:
        threading.Thread(target=end_above, args=(limit, faults), daemon=True).start()


def end_above(limit: int, faults: TextIO) -> None:
    """Wait until the process has had more than ``limit`` bytes resident, and end it."""
    while largest_resident() <= limit:
        time.sleep(PAUSE)
    faults.write(f"{TOO_LARGE} {shown(limit)} of memory that the tests may take: {GROWS}\n")
    faults.flush()
    faulthandler.dump_traceback(faults)
    os._exit(1)


def largest_resident() -> int:
    """The most memory, in bytes, that this process has had resident at any time."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def shown(limit: int) -> str:
    return f"{limit / GIB:.3g} GiB"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was refused: torch and MLX say so by a RuntimeError."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and REFUSED.search(str(error)) is not None
    )
