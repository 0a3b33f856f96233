"""An environment for each peer, in the cache folder: made on request, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock
from rich.console import Console

from benchmarks.peers.catalogue import Peer
from coursekit.errors import CourseError
from programs.waiting import Say, waiting

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
LAST_LINES = 12


def peers_folder() -> Path:
    """Where environments lie, and the model in the forms that they read."""
    from tiny_llm.cache_folder import cache_folder

    return cache_folder() / "peers"


class Environment:
    """A peer's environment, which is there or not."""

    def __init__(self, peer: Peer, parent: Path) -> None:
        """Nothing is made yet.

        Args:
            peer: the engine.
            parent: the folder that the environments of all peers lie in.
        """
        self.peer = peer
        self.folder = parent / peer.name / _digest(peer)

    @property
    def python(self) -> Path:
        """Its Python."""
        return python_in(self.folder)

    @property
    def installed(self) -> bool:
        """Whether it is there, whole, with the versions that are wanted now."""
        return self.python.exists()

    def install(self, console: Console) -> None:
        """Make it, unless it is there.

        It grows in a folder of another name, which is renamed at the end: Ctrl-C, an error or a full disk leave
        nothing that could be taken for an environment, and mostly nothing at all.

        Args:
            console: where it says how far it is.

        Raises:
            CourseError: it can't be installed; the message has the last that pip said, and what to do.
        """
        try:
            self._install(console)
        except OSError as error:
            raise CourseError(
                f"{self.peer.name} could not be installed in {self.folder}: {error.strerror}"
            ) from error

    def _install(self, console: Console) -> None:
        folder = self.folder.parent
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if self.installed:
                return
            for old in folder.glob("*/"):  # of other versions, and what a command that was killed has left
                shutil.rmtree(old, ignore_errors=True)
            half_made = folder / "half-made"
            try:
                self._fill(half_made, console)
                # Only its Python is called, by its path, and that finds its packages wherever the folder lies.
                half_made.rename(self.folder)
            finally:
                shutil.rmtree(half_made, ignore_errors=True)

    @property
    def _note(self) -> str:
        return f" ({self.peer.note})" if self.peer.note else ""

    def _fill(self, folder: Path, console: Console) -> None:
        console.print(f"installing {self.peer.label}{self._note}", soft_wrap=True, markup=False)
        with waiting(f"{self.peer.name}: making an environment", console) as say:
            self._call([sys.executable, "-m", "venv", str(folder)], folder, say)
            pip = [str(python_in(folder)), *PIP]
            if self.peer.torch:
                self._install_torch([*pip, "install", self.peer.torch], folder, say)
            self._call([*pip, "install", *self.peer.packages], folder, say)
            if self.peer.unwanted:
                self._call([*pip, "uninstall", "--yes", *self.peer.unwanted], folder, say)

    def _install_torch(self, command: Sequence[str], folder: Path, say: Say) -> None:
        """Two tries: torch's CPU builds have an index of their own, which not every network reaches."""
        try:
            self._call(command, folder, say)
        except CourseError:
            self._call([*command, "--extra-index-url", TORCH_CPU_INDEX], folder, say)

    def _call(self, command: Sequence[str], folder: Path, say: Say) -> None:
        """Let a program do a part of the work, and say what it says; what it puts down for a while is gone then."""
        lines: list[str] = []
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="temporary-") as temporary:
            places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), temporary)
            with _started(command, {**own_environment(), **self.peer.build, **places}) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line.rstrip())
                    say(f"{self.peer.name}: {lines[-1][:100]}")
        if process.returncode:
            raise CourseError(
                f"{self.peer.name} could not be installed{self._note}. The last that was said:\n"
                + "\n".join(lines[-LAST_LINES:])
                + f"\nIs there a network, and room on the disk? Then try again: {self.peer.install_command}"
            )

    def variables(self) -> dict[str, str]:
        """The variables of the environment for the peer's runner."""
        own = {name: value.format(folder=self.folder) for name, value in self.peer.run.items()}
        return {**own_environment(), **own}


def python_in(folder: Path) -> Path:
    """The Python of an environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def own_environment() -> dict[str, str]:
    """The variables of this process, without those that lead a Python to the course's packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _digest(peer: Peer) -> str:
    """Of all that decides what is in the environment."""
    decides = [
        peer.torch,
        peer.packages,
        peer.unwanted,
        dict(peer.build),
        sys.version_info[:2],
        platform.machine(),
    ]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:10]


@contextmanager
def _started(command: Sequence[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that says what it does; it has ended when the block has, also if that is broken off."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=environment,
        start_new_session=True,  # Ctrl-C comes to this process alone, which ends the other
    )
    try:
        yield process
        process.wait()
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    """End a process that was started in a session of its own, with all that it has started (a compiler, workers)."""
    if os.name == "nt":
        process.kill()
    else:
        # Its children may be there though it has ended itself, or may all be gone.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):  # what it never read
                stream.close()
