"""Running what a model's files bring along, in a process of its own and within limits.

A chat template is a program, and the patterns of a tokenizer are nearly one. Either can loop forever, or ask for more
memory than there is, and nothing inside a Python process can stop it then. So it runs in another process, under the
operating system's own limits on processor time and memory. Both sides of that are in this file; question and answer
are one line of JSON each.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 5.0  # of processor time for one answer
_PATIENCE = 30.0  # seconds by the clock: for a busy machine, and where processor time can't be limited
_MEMORY = 2**30  # bytes of address space
_PACKAGES = Path(__file__).parents[2]  # the folder that holds tiny_llm


class Overrun(Exception):
    """The process ended without an answer: it ran into a limit, or broke."""


class Apart:
    """A module of this package that answers questions in a process of its own. Threads may share it."""

    def __init__(self, module: str) -> None:
        """Nothing is started before the first question.

        Args:
            module: the module's name, which runs :func:`answer_questions` as a main program.
        """
        self._module = module
        self._seconds = SECONDS
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, question: dict[str, Any]) -> Any:
        """The process's answer. One that has ended is replaced by a new one.

        Raises:
            Overrun: there is none.
        """
        with self._lock:
            process = self._running()
            guard = threading.Timer(_PATIENCE, process.kill)
            guard.start()
            try:
                answer = _exchange(process, json.dumps(question, default=str))
            except BaseException:  # also Ctrl-C: an answer that comes later would be taken for the next one
                self._stop()
                raise
            finally:
                guard.cancel()
            if not answer:
                self._stop()
                raise Overrun(
                    f"it took more than {self._seconds:g} seconds or {_MEMORY >> 20} MiB, or broke off"
                )
        return json.loads(answer)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._module, str(self._seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_PACKAGES), *sys.path])},
                text=True,
                encoding="utf-8",
            )
            self._stop_process = weakref.finalize(self, _stop, self._process)
        return self._process

    def _stop(self) -> None:
        self._stop_process()
        self._process = None


def _exchange(process: subprocess.Popen[str], question: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(f"{question}\n")
        process.stdin.flush()
        return process.stdout.readline()
    except (BrokenPipeError, ValueError):
        return ""


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()  # closes the pipes, and waits for the end


def answer_questions(answer: Callable[[dict[str, Any]], Any]) -> None:
    """The other side: answer one line of standard input after another, each within the limits.

    The seconds for an answer are the program's argument.
    """
    seconds = float(sys.argv[1])
    _limit_memory()
    if hasattr(signal, "SIGINT"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program that asks
    for line in sys.stdin:
        _limit_time(seconds)
        text = json.dumps(answer(json.loads(line)))
        _limit_time(0.0)
        print(text, flush=True)


def _limit_memory() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _limit_time(seconds: float) -> None:
    """Have the process ended after so many seconds of processor time, whatever it does; 0 for no limit."""
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)
