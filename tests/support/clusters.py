"""Dask clusters on this machine, for the tests of grading on more than one: real processes, loopback addresses."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runs import environment

from coursekit.paths import Course

HOST = "127.0.0.1"
START_SECONDS = 90.0
"""Patience with a busy machine: a worker imports for seconds even on a free one."""
STOP_SECONDS = 20.0


class Cluster:
    """A scheduler, and the workers that a test adds; each has a file of what it says."""

    def __init__(self, folder: Path, course: Course, variables: Mapping[str, str]) -> None:
        self.folder, self.course = folder, course
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._environment = environment(course) | dict(variables)
        self._environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
        file = folder / "scheduler.json"
        self.start(
            "scheduler", "scheduler", "--host", HOST, "--port", "0", "--no-dashboard", "--dashboard-address",
            f"{HOST}:0", "--scheduler-file", str(file),
        )  # fmt: skip
        self._until("scheduler", file.is_file)
        self.address: str = json.loads(file.read_text(encoding="utf-8"))["address"]

    def add_worker(self, name: str, *options: str, course: Course | None = None) -> None:
        """Start a worker of one thread, in a copy of the course that is its own unless it is given."""
        if course is None:
            course = Course(self.folder / name)
            shutil.copytree(self.course.root, course.root)
        self.start(
            name, "worker", self.address, "--nthreads", "1", "--name", name, "--host", HOST, "--no-dashboard",
            *options, TINY_LLM_ROOT=str(course.root),
        )  # fmt: skip

    def stop_worker(self, name: str) -> None:
        """End one in order; the scheduler knows of it afterwards."""
        self.processes[name].terminate()
        self.processes.pop(name).wait(STOP_SECONDS)

    def wait_for_workers(self, *names: str) -> None:
        for name in names:
            self._until(name, lambda name=name: "Registered to" in self.said(name))

    def said(self, name: str) -> str:
        """What a process has written so far."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def start(self, name: str, *arguments: str, **variables: str) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments],
                cwd=self.folder,
                env=self._environment | variables,
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        """End all in order, so that a nanny ends its worker; those that take too long at once."""
        for process in reversed(self.processes.values()):
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in self.processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _until(self, name: str, condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            assert self.processes[name].poll() is None, self.said(name)
            assert time.monotonic() < deadline, self.said(name)
            time.sleep(0.05)


@contextmanager
def cluster_of(folder: Path, course: Course, *workers: str, **variables: str) -> Iterator[Cluster]:
    """A cluster with workers of these names, all there; nannies watch over them."""
    folder.mkdir()
    cluster = Cluster(folder, course, variables)
    try:
        for name in workers:
            cluster.add_worker(name)
        cluster.wait_for_workers(*workers)
        yield cluster
    finally:
        cluster.stop()


def unused_address() -> str:
    """An address at which nothing listens."""
    with socket.create_server((HOST, 0)) as server:
        return f"tcp://{HOST}:{server.getsockname()[1]}"
