"""Looks at what a tree of processes uses, and says which limit it is beyond."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from grading.sandbox import scratch_use, tree
from grading.sandbox.ending import Cause
from grading.sandbox.plan import Plan

_LEAST_PAUSE = 0.05  # seconds between two looks; within it, two cores fill some 300 MB of memory
_GLANCE = (
    0.01  # seconds between two glances at how many threads the machine has: a fork bomb is faster than a look
)
_SHARE = 0.05  # of the time may be spent on looking at processes; the same on looking at files


class Watch:
    """Of the descendants of this process, from now on."""

    def __init__(self, plan: Plan, own_pid: int) -> None:
        self._plan, self._own_pid = plan, own_pid
        self._began = time.monotonic()
        self._next_look = self._next_files = self._began
        self._threads = tree.threads_of_machine()

    @property
    def pause(self) -> float:
        """Seconds until the next look is due."""
        return min(_GLANCE, max(0.0, self._next_look - time.monotonic()))

    def beyond(self) -> Cause | None:
        """The limit that is exceeded; ``None`` if there is none, or if the next look isn't due yet."""
        began = time.monotonic()
        if began < self._next_look and not self._is_crowded():
            return None
        limits = self._plan.limits
        processes = tree.descendants(self._own_pid)
        cause = None
        if began - self._began > limits.seconds:
            cause = Cause.SECONDS
        elif self._cpu(processes) > limits.cpu_seconds:
            cause = Cause.CPU
        elif sum(process.threads for process in processes) > limits.processes:
            cause = Cause.PROCESSES
        elif tree.memory(processes, limits.memory) > limits.memory:
            cause = Cause.MEMORY
        now = time.monotonic()
        self._next_look = now + max(_LEAST_PAUSE, (now - began) / _SHARE)
        return cause or self._files_beyond(processes)

    def _is_crowded(self) -> bool:
        """Whether the machine has so many threads more than before that they may be beyond the limit."""
        threads = tree.threads_of_machine()
        is_crowded = threads - self._threads > self._plan.limits.processes
        self._threads = threads if is_crowded else min(threads, self._threads)
        return is_crowded

    def _cpu(self, processes: list[tree.Process]) -> float:
        """Seconds of those that live, and of those that have ended and were waited for."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return ended.ru_utime + ended.ru_stime + sum(process.cpu for process in processes)

    def _files_beyond(self, processes: list[tree.Process]) -> Cause | None:
        began = time.monotonic()
        if began < self._next_files:
            return None
        try:
            cause = self._counted([process.pid for process in processes])
        except scratch_use.HiddenFilesError:
            cause = Cause.HIDDEN
        now = time.monotonic()
        self._next_files = now + max(_LEAST_PAUSE, (now - began) / _SHARE)
        return cause

    def _counted(self, pids: list[int]) -> Cause | None:
        limits, folder = self._plan.limits, Path(self._plan.scratch)
        if self._plan.private_scratch:
            files = scratch_use.files_of_private(folder, pids)
            return Cause.FILES if files > limits.scratch_files else None
        use = scratch_use.of_folder(folder, limits.scratch_files)
        if use.files > limits.scratch_files:
            return Cause.FILES
        used = use.bytes + scratch_use.of_deleted_files(pids, folder)
        return Cause.SCRATCH if used > limits.scratch_bytes else None
