"""The process between the grader and a confined command: it starts the command, holds it to its limits, and ends
all of it.

A process of its own, since it takes in processes whose parents have ended (Linux), so that none gets away, and
since it outlives the grader where that is killed. Standard input is the grader's end: a line with the plan; when
it closes, all is to end. Standard output takes two lines of JSON: what came of the start, and how it ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from grading.sandbox import enter, tree
from grading.sandbox.ending import Cause, Ending
from grading.sandbox.output import Kept
from grading.sandbox.plan import Plan
from grading.sandbox.watch import Watch

_CONTROL, _STATUS = 0, 1
_SET_CHILD_SUBREAPER = 36
_PART = 1 << 20
_LOOK_FOR_END = 0.02  # seconds; where the system can't tell by itself
_SECONDS_TO_START = 60.0


def main() -> None:
    """Guard one command, then exit."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    guard = Guard(Plan.from_json(json.loads(_line(_CONTROL))))
    try:
        guard.run()
    finally:
        guard.end_all()


class Guard:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._parent = os.getppid()
        self._kept = Kept(plan.limits.output_bytes)

    def run(self) -> None:
        """Start it, wait for its end or bring it about, and report."""
        try:
            refusal = self._start()
        except OSError as error:
            _report(refused=str(error))
            return
        if refusal:
            self.end_all()
            self._drain()
            _report(refused=f"{refusal} {self._kept.text()}".strip())
            return
        _report(refused="")
        cause = self._until_end()
        self.end_all()
        self._drain()
        _report(ending=asdict(self._ending(cause)), output=self._kept.text())

    def _start(self) -> str:
        """Start the command; return why it could not be, or nothing."""
        plan = self._plan
        ready, ready_inside = os.pipe()
        self._output, output_inside = os.pipe()
        entry = json.dumps(asdict(replace(plan.entry, ready=ready_inside)))
        source = Path(enter.__file__).read_text("utf-8")
        self._child = subprocess.Popen(
            [*plan.before, sys.executable, "-I", "-S", "-c", source, entry],
            stdin=subprocess.DEVNULL,
            stdout=output_inside,
            stderr=output_inside,
            env={},
            pass_fds=[*plan.pass_fds, ready_inside],
            start_new_session=True,
        )
        for descriptor in (output_inside, ready_inside, *plan.pass_fds):
            os.close(descriptor)  # else the grader never sees the end of what the command writes to
        os.set_blocking(self._output, False)
        self._watch = Watch(plan, os.getpid())
        said = self._answer_of_start(ready)
        if said == b"+":
            return ""
        return said.lstrip(b"+-").decode(errors="replace") or "it ended before the command began."

    def _answer_of_start(self, ready: int) -> bytes:
        """What ``enter`` says, to the end; the command's start closes this pipe. Less, where the grader doesn't
        wait for it."""
        said = bytearray()
        until = time.monotonic() + _SECONDS_TO_START
        with selectors.DefaultSelector() as events, os.fdopen(ready, "rb", buffering=0) as answer:
            events.register(answer, selectors.EVENT_READ)
            events.register(_CONTROL, selectors.EVENT_READ)
            while found := [key.fd for key, _ in events.select(until - time.monotonic())]:
                if _CONTROL in found:
                    return b"-the grader doesn't want it any more."
                if not (part := answer.read(_PART)):
                    return bytes(said)
                said += part
        return b"-it took too long."

    def _until_end(self) -> Cause:
        """Take what is printed until the command ends, is to end, or is beyond a limit."""
        with selectors.DefaultSelector() as ready:
            ready.register(_CONTROL, selectors.EVENT_READ)
            ready.register(self._output, selectors.EVENT_READ)
            tells = hasattr(os, "pidfd_open")
            if tells:
                ready.register(os.pidfd_open(self._child.pid), selectors.EVENT_READ)
            while True:
                pause = self._watch.pause if tells else min(self._watch.pause, _LOOK_FOR_END)
                files = [key.fd for key, _ in ready.select(pause)]
                if _CONTROL in files or os.getppid() != self._parent:
                    return Cause.KILLED
                if self._output in files and not self._take():
                    ready.unregister(self._output)
                if self._child.poll() is not None:
                    return Cause.ITSELF
                if cause := self._watch.beyond():
                    return cause

    def _take(self) -> bool:
        """One part of what was printed; ``False`` when there will be no more."""
        try:
            part = os.read(self._output, _PART)
        except BlockingIOError:
            return True
        self._kept.take(part)
        return bool(part)

    def _drain(self) -> None:
        """What is left in the pipe, when no process can write to it any more."""
        while True:
            try:
                part = os.read(self._output, _PART)
            except BlockingIOError:
                return
            if not part:
                return
            self._kept.take(part)

    def end_all(self) -> None:
        """End the command and all that it has started, and wait until there is none of them."""
        if not hasattr(self, "_child"):
            return
        self._child.kill()
        _send(-self._child.pid, signal.SIGKILL)  # its process group at once: faster than a fork bomb
        self._stop_all()
        while processes := tree.descendants(os.getpid()):
            for process in processes:
                _send(process.pid, signal.SIGKILL)
            if not self._reap():
                return

    def _stop_all(self) -> None:
        """Stop them before they are ended, so that none starts another in between."""
        stopped: set[int] = set()
        while new := {process.pid for process in tree.descendants(os.getpid())} - stopped:
            for pid in new:
                _send(pid, signal.SIGSTOP)
            stopped |= new

    def _reap(self) -> bool:
        """Take leave of those that have ended; ``False`` when there are no children any more."""
        self._child.poll()
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                time.sleep(0.001)
                return True

    def _ending(self, cause: Cause) -> Ending:
        if cause != Cause.ITSELF:
            return Ending(cause)
        code = self._child.returncode
        if code < 0:
            return Ending(cause, signal=-code)
        if self._plan.shell_codes and code > 128:
            return Ending(cause, signal=code - 128)
        return Ending(cause, code=code)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _report(**values: Any) -> None:
    data = json.dumps(values).encode() + b"\n"
    try:
        while data:
            data = data[os.write(_STATUS, data) :]
    except BrokenPipeError:
        return  # the grader is gone: there is nobody to tell


def _line(descriptor: int) -> bytes:
    parts = bytearray()
    while not parts.endswith(b"\n"):
        if not (part := os.read(descriptor, 1 << 16)):
            sys.exit(1)
        parts += part
    return bytes(parts)
