"""What a process and all that it has started use, as the system counts it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

if sys.platform != "win32":
    _TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    """One process: its number, its parent's, bytes resident, seconds of CPU time (with those of children that
    have ended and were waited for), threads."""

    pid: int
    parent: int
    memory: int
    cpu: float
    threads: int


def descendants(ancestor: int) -> list[Process]:
    """All processes below ``ancestor``, parents before their children; without itself."""
    every = _linux() if sys.platform == "linux" else _other()
    return below(ancestor, every)


def below(ancestor: int, every: Iterable[Process]) -> list[Process]:
    """Those of ``every`` that descend from ``ancestor``, parents before their children."""
    children: dict[int, list[Process]] = {}
    for process in every:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    parents = [ancestor]
    while parents:
        found += (next_ones := children.pop(parents.pop(), []))
        parents += [process.pid for process in next_ones]
    return found


def memory(processes: Iterable[Process], limit: int) -> int:
    """Bytes that the processes have resident. Where that seems more than ``limit``, pages that they share are
    counted once."""
    processes = list(processes)
    seeming = sum(process.memory for process in processes)
    if seeming <= limit or len(processes) == 1:
        return seeming
    return sum(_proportional(process) for process in processes)


def _proportional(process: Process) -> int:
    """Bytes resident, of each shared page its share; the plain count where the system doesn't tell."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return process.memory
    values = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return values[0] << 10 if values else process.memory


def _linux() -> Iterable[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                yield parse_stat(Path(f"/proc/{name}/stat").read_bytes())


def parse_stat(text: bytes) -> Process:
    """One line of Linux's ``/proc/PID/stat``. The program's name stands in parentheses, and may hold any
    character."""
    start, _, rest = text.rpartition(b")")
    field = rest.split()
    return Process(
        pid=int(start.split(b" ", 1)[0]),
        parent=int(field[1]),
        memory=int(field[21]) * _PAGE,
        cpu=sum(int(ticks) for ticks in field[11:15]) / _TICKS,
        threads=int(field[17]),
    )


def _other() -> Iterable[Process]:
    """By the program ps, which every other Unix has; it counts no threads."""
    listing = subprocess.run(
        ["ps", "-axo", "pid=,ppid=,rss=,time="], capture_output=True, text=True, check=False
    )
    for line in listing.stdout.splitlines():
        pid, parent, kib, clock = line.split()
        yield Process(int(pid), int(parent), int(kib) << 10, seconds(clock), 1)


def seconds(clock: str) -> float:
    """What ps prints as a time, "1:02:03.45" or "2-03:04:05", in seconds."""
    days, _, rest = clock.rpartition("-")
    hours, minutes, rest_of_minute = ("0:0:" + rest).split(":")[-3:]
    return ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + float(rest_of_minute)


def threads_of_machine() -> int:
    """All threads that there are, as Linux counts them in its load average; elsewhere 0."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    except OSError:
        return 0
