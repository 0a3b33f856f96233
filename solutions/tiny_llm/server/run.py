"""A server that listens, and ends in peace (Day 4.6, given code)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from tiny_llm.engine.llm import LLM
from tiny_llm.ragged.open_files import most_connections

SECONDS_BETWEEN = 0.01
BACKLOG = 2048
FLUSH = 1
"""Seconds for answers that are complete to reach their clients."""


class QuietServer(uvicorn.Server):
    """A server that leaves the signals of its process alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class HttpServer:
    """Starts and stops what a client can reach. Made and used on one event loop."""

    def __init__(self, app: FastAPI, llm: LLM, host: str = "127.0.0.1", port: int = 0) -> None:
        """Nothing listens before :meth:`start`.

        Args:
            app: what answers.
            llm: its engine, which :meth:`stop` closes.
            host: the address to listen on.
            port: the port to listen on; 0: any that is free.
        """
        self.llm = llm
        self.host = host
        self.port = port
        self.server = QuietServer(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=most_connections(),
                timeout_graceful_shutdown=FLUSH,
            )
        )

    async def start(self) -> str:
        """Listen.

        Returns:
            the address, with the port that was chosen.

        Raises:
            OSError: the address can't be listened on.
        """
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            listener = listen(*found[0])
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise OSError(f"can't listen on {self.address}: {reason}") from error
        self.port = listener.getsockname()[1]
        self.serving = asyncio.create_task(self.server.serve([listener]))
        while not self.server.started and not self.serving.done():
            await asyncio.sleep(SECONDS_BETWEEN)
        return self.address

    @property
    def address(self) -> str:
        """Where clients reach the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    async def stop(self, grace: float = 30.0) -> bool:
        """Refuse new requests, let those that run finish, for ``grace`` seconds at most; then end.

        Meanwhile ``/ready`` and new requests get the status 503, and the figures can still be read.

        Returns:
            whether all requests were finished.
        """
        finished = await asyncio.to_thread(self.llm.close, True, grace)
        if not finished:
            await asyncio.to_thread(self.llm.close, False)
        self.server.should_exit = True
        await self.serving
        return finished


def listen(family: int, kind: int, protocol: int, name: str, address: tuple[Any, ...]) -> socket.socket:
    """A socket that listens; the arguments are an entry of `getaddrinfo`.

    The protocol matters: asyncio sends small pieces without delay only where the socket says that it is TCP. Else
    each of them may wait for 40 ms.

    Raises:
        OSError: the address can't be listened on.
    """
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
