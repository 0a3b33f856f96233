"""The course's own server over HTTP in a process of its own, for a bench that asks it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import httpx

from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from programs.waiting import waiting

SECONDS_TO_START = 180.0
SECONDS_TO_STOP = 10.0
SECONDS_BETWEEN = 0.2


def server_command(impl: Impl, port: int) -> list[str]:
    """How the server is started."""
    return [sys.executable, "-m", "programs", "serve", "--http", "--impl", str(impl), "--port", str(port)]


@contextmanager
def own_server(impl: Impl) -> Iterator[str]:
    """Start the server, and stop it at the end; gives its address once it is ready.

    Raises:
        CourseError: it has ended before it was ready, with the last that it said; or it takes too long.
    """
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        # A key that is meant for another server would be asked for here, too.
        environment = {name: value for name, value in os.environ.items() if name != "TINY_LLM_API_KEY"}
        process = subprocess.Popen(server_command(impl, port), stdout=said, stderr=said, env=environment)
        try:
            with waiting("starting the server"):
                _wait_until_ready(process, url, said)
            yield url
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, said: IO[str]) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    with httpx.Client(trust_env=False, timeout=SECONDS_BETWEEN) as client:
        while not _ready(client, url):
            if process.poll() is not None:
                raise CourseError(f"the server has ended before it was ready:\n{_last(said)}")
            if time.monotonic() > deadline:
                raise CourseError(f"the server was not ready after {SECONDS_TO_START:g} s:\n{_last(said)}")
            time.sleep(SECONDS_BETWEEN)


def _ready(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/ready").is_success
    except httpx.HTTPError:
        return False


def _last(said: IO[str], lines: int = 15) -> str:
    said.seek(0)
    text: Sequence[str] = said.read().splitlines()
    return "\n".join(text[-lines:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
