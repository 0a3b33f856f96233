"""Listens on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from coursekit.errors import CourseError
from programs.stop_signals import StopSignals

HOST = "127.0.0.1"
SECONDS_BETWEEN = 0.1
FLUSH = 2
"""Seconds for streams to end by themselves."""


class QuietServer(uvicorn.Server):
    """A server that leaves the signals of its process alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def open_socket(port: int) -> socket.socket:
    """Where to listen.

    Args:
        port: 0 for any that is free.

    Raises:
        CourseError: the port is taken, or may not be used.
    """
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        reason = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror
        raise CourseError(
            f"can't listen on {HOST}:{port}: {reason}; choose another port with --port, or 0 for any that is free"
        ) from None


async def listen(
    app: FastAPI, listener: socket.socket, started: Callable[[], object], close: Callable[[], None]
) -> None:
    """Serve an app until the first Ctrl-C; the next one ends the process at once.

    Args:
        app: what is served.
        listener: where.
        started: called when it is served.
        close: called when it is to end: streams that never end by themselves have to end then.
    """
    signals = StopSignals(close)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=FLUSH,
    )
    server = QuietServer(config)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(SECONDS_BETWEEN / 10)
    started()
    while not serving.done() and not await signals.asked_within(SECONDS_BETWEEN):
        pass
    close()
    server.should_exit = True
    await serving
