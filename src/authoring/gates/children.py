"""Runs pytest in a child process: forked from a server that has the imports done, or started anew."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NoReturn

from coursekit.machine import THREAD_VARIABLES

# One core for each child: the cores are shared out by running several children.
ONE_THREAD = {**dict.fromkeys(THREAD_VARIABLES, "1"), "TOKENIZERS_PARALLELISM": "false"}
# Windows has no fork, and the frameworks of macOS forbid it.
METHOD = "spawn" if sys.platform in ("win32", "darwin") else "forkserver"
# The fork server's socket has a name of some 32 letters in the temporary folder; its whole path may have 107 bytes.
LONGEST_FOLDER = 70
FAILED_TO_START = 70


@dataclass(frozen=True)
class Command:
    """pytest's arguments, the folder it runs in, where its temporary files, its output and its kernels go."""

    arguments: Sequence[str]
    folder: Path
    temporary: Path
    log: Path
    kernels: Path


def start(command: Command) -> BaseProcess:
    """Start pytest in a child process, in a process group of its own."""
    context = get_context(_method())
    context.set_forkserver_preload(["authoring.gates.preloaded"])
    child: BaseProcess = context.Process(target=_be_the_child, args=(command,))  # type: ignore[attr-defined]
    child.start()
    return child


def _method() -> str:
    """How a child is started: where the temporary folder leaves no room for a socket's name, without a server."""
    too_long = len(os.fsencode(tempfile.gettempdir())) > LONGEST_FOLDER
    return "spawn" if too_long else METHOD


def end(child: BaseProcess) -> None:
    """End a child and all that it started, also where it has ended by itself."""
    if hasattr(os, "killpg") and child.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.join()


def _be_the_child(command: Command) -> NoReturn:
    """Run pytest and leave at once: threads that its tests left behind are not waited for."""
    code = FAILED_TO_START
    try:
        if hasattr(os, "setsid"):
            os.setsid()
        _redirect(command.log)
        os.chdir(command.folder)
        os.environ.update(_environment(command))
        sys.dont_write_bytecode = True
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)
        if numba := sys.modules.get("numba"):
            numba.config.reload_config()
        import pytest

        code = int(pytest.main(list(command.arguments)))
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    nothing, output = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _environment(command: Command) -> dict[str, str]:
    own = {"TMPDIR": str(command.temporary), "PYTEST_ADDOPTS": ""}
    return {**ONE_THREAD, "NUMBA_CACHE_DIR": str(command.kernels), **own}
