"""A command that runs shut in, as the grader sees it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from types import TracebackType
from typing import Any

from coursekit.errors import CourseError
from grading.sandbox.ending import Cause, Ending, in_words
from grading.sandbox.limits import Limits
from grading.sandbox.plan import Plan

_RUN_GUARD = "import sys; sys.path[:] = sys.argv[1:]; from grading.sandbox.guard import main; main()"
_PATIENCE = 30.0  # seconds that the guard has to end everything


class Confined:
    """A command that was started. As a context manager, all of it has ended on the way out.

    All of it also ends when the command itself ends, whatever it has started, and when this process ends, even
    by SIGKILL. May be used by several threads.
    """

    def __init__(self, plan: Plan) -> None:
        """Start it, and return when the command has begun. Called by ``Isolation.start``.

        Raises:
            CourseError: it can't be started, or not shut in.
        """
        self._limits: Limits = plan.limits
        self._lock = threading.Lock()
        self._has_ended = threading.Event()
        self._ending = Ending(Cause.LOST)
        self._output = ""
        self._guard = _start_guard(plan)
        try:
            self._begin(plan)
        except BaseException:
            self._let_go()
            self._guard.wait(_PATIENCE)
            raise
        threading.Thread(target=self._await_end, name="end of a confined command", daemon=True).start()

    def __enter__(self) -> Confined:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def poll(self) -> bool:
        """Whether all of it has ended."""
        return self._has_ended.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all of it has ended, at most ``timeout`` seconds; return whether it has."""
        return self._has_ended.wait(timeout)

    def kill(self) -> None:
        """End all of it, and return when it has ended. If it has already, nothing happens."""
        self._let_go()
        if not self._has_ended.wait(_PATIENCE):
            self._guard.kill()
            self._has_ended.wait()

    def output(self) -> str:
        """What it wrote to its standard output and error, bounded by the limit; empty as long as it runs."""
        return self._output

    def why_ended(self) -> str:
        """ "ended itself with exit code 3", "was ended: it used more than 2 GiB of memory", "is running"."""
        return in_words(self._ending, self._limits) if self.poll() else "is running"

    @property
    def ending(self) -> Ending | None:
        """The same for programs; ``None`` as long as it runs."""
        return self._ending if self.poll() else None

    def _begin(self, plan: Plan) -> None:
        control, status = self._guard.stdin, self._guard.stdout
        assert control is not None
        assert status is not None
        with contextlib.suppress(BrokenPipeError):  # the answer is then missing, too
            control.write(json.dumps(plan.to_json()).encode() + b"\n")
            control.flush()
        answer = status.readline()
        refused = json.loads(answer)["refused"] if answer else "the process that guards it did not start."
        if refused:
            raise CourseError(f"can't start {plan.entry.command[0]} shut in: {refused}")

    def _await_end(self) -> None:
        assert self._guard.stdout is not None
        with self._guard.stdout as status:
            line = status.readline()
        self._guard.wait()
        if line:
            report: dict[str, Any] = json.loads(line)
            self._output = report["output"]
            self._ending = Ending(**{**report["ending"], "cause": Cause(report["ending"]["cause"])})
        self._let_go()
        self._has_ended.set()

    def _let_go(self) -> None:
        """Close this end of the control pipe, which tells the guard to end everything."""
        with self._lock:
            if self._guard.stdin is not None and not self._guard.stdin.closed:
                with contextlib.suppress(BrokenPipeError):
                    self._guard.stdin.close()


def _start_guard(plan: Plan) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _RUN_GUARD, *map(os.path.abspath, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            pass_fds=plan.pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        raise CourseError(f"can't start {sys.executable}: {error.strerror}") from error
