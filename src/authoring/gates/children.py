"""Runs pytest in a child process: forked from this one where that is safe, else started anew.

A forked child has torch, NumPy and pytest imported already, which saves seconds each time.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import gc
import importlib
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn, Protocol

from authoring.gates import kernel_cache
from coursekit.backends import Device
from coursekit.paths import PACKAGES, Course
from coursekit.running.import_path import choose_triton

# One core for each child: the cores are shared out by running several children.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# The packages under test must be imported in the child, from its own folder; MLX starts threads when imported.
NEVER_BEFORE_FORK = (*PACKAGES, "mlx")
FAILED_TO_START = 70


@dataclass(frozen=True)
class Command:
    """pytest's arguments, the folder it runs in, where its temporary files, its output and its kernels go."""

    arguments: Sequence[str]
    folder: Path
    temporary: Path
    log: Path
    kernels: Path


class Child(Protocol):
    def poll(self) -> int | None:
        """The exit code (minus the signal's number where one ended it), or None while it runs."""

    def kill(self) -> None:
        """End the child and all that it started."""


def start(command: Command) -> Child:
    """Start pytest in a child process, in a process group of its own."""
    return _fork(command) if can_fork() else _spawn(command)


def can_fork() -> bool:
    """Whether a child may be forked here and now.

    Not on macOS, whose frameworks forbid it, nor while other threads may hold locks that the child would inherit, nor
    after a parallel kernel ran here: GNU OpenMP would end the child at its first kernel.
    """
    if not hasattr(os, "fork") or sys.platform == "darwin" or threading.active_count() > 1:
        return False
    return not any(name in sys.modules for name in NEVER_BEFORE_FORK) and not _kernel_ran()


def _kernel_ran() -> bool:
    """Whether Numba has started the threads that its parallel kernels run on."""
    numba = sys.modules.get("numba")
    if numba is None:
        return False
    try:
        numba.threading_layer()
    except ValueError:  # it says that no layer is in use yet
        return False
    return True


@cache
def preload(course: Course) -> None:
    """Import once, before the first fork, all that the reference and the days' tests import."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    choose_triton(Device.CPU)
    for name in ["pytest", "coursekit.plugin", "coursekit.check", *_pytest_plugins(), *_imported(course)]:
        # A module that can't be imported here is the child's to report, where it needs it.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    for name, value in before.items():
        os.environ.pop(name)
        if value is not None:
            os.environ[name] = value
    # Collecting garbage in a child would otherwise walk through all of torch, and copy its pages.
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # what is still frozen at the end, Triton's bindings report as leaked


def _pytest_plugins() -> list[str]:
    """The plugins that pytest loads by itself, and what Hypothesis's imports at the end of every run."""
    return [*(plugin.module for plugin in entry_points(group="pytest11")), "hypothesis"]


def _imported(course: Course) -> list[str]:
    """The modules, outside the course, that the files of the reference and of the days' tests import."""
    names: set[str] = set()
    for path in [*(course.root / "solutions").rglob("*.py"), *course.tests.glob("week_*/*.py")]:
        with contextlib.suppress(SyntaxError, ValueError):
            names.update(_imports(ast.parse(path.read_bytes())))
    return sorted(name for name in names if name.partition(".")[0] not in NEVER_BEFORE_FORK)


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


class _Forked:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def kill(self) -> None:
        _kill_group(self._pid)
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
            self._code = os.waitstatus_to_exitcode(status)


class _Spawned:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        if hasattr(os, "killpg"):
            _kill_group(self._process.pid)
        self._process.kill()
        self._process.wait()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _spawn(command: Command) -> Child:
    with open(command.log, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-B", "-m", "pytest", *command.arguments],
            cwd=command.folder,
            env={**os.environ, **_environment(command)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return _Spawned(process)


def _fork(command: Command) -> Child:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _be_the_child(command)
    return _Forked(pid)


def _be_the_child(command: Command) -> NoReturn:
    """Run pytest and leave at once: nothing of the parent's (its exit handlers, its `finally`) may run here."""
    code = FAILED_TO_START
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
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
    return {**ONE_THREAD, **kernel_cache.environment(command.kernels), **own}
