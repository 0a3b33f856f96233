"""A gRPC server around the service: address, health, reflection, and a graceful end (given code, Day 3.7)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tiny_llm.ragged.answer import NOT_FOR_FUTURES
from tiny_llm.ragged.batcher import Batcher
from tiny_llm.ragged.grpc_door import SERVICE, Door
from tiny_llm.ragged.grpc_service import TinyLlmService
from tiny_llm.ragged.open_files import most_connections
from tiny_llm.ragged.protocol import tiny_llm_pb2_grpc as pb_grpc
from tiny_llm.tokenizer import Tokenizer

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
KEEPALIVE = 20_000
"""Milliseconds after which a silent client is asked whether it is still there, and in which it has to answer."""
SPARE_CALLS = 64
"""Calls beside those that run and wait: they ask for the health, or are about to be refused."""
THREADS = 4
"""For texts that become tokens."""


class Threads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`. What a future can't carry comes out of them as a RuntimeError."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As usual."""

        def call() -> Any:
            try:
                return fn(*args, **kwargs)
            except NOT_FOR_FUTURES as error:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error

        return super().submit(call)


class Server:
    """Starts and stops what a client can reach. Made and used on one event loop."""

    def __init__(
        self, batcher: Batcher, tokenizer: Tokenizer, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        """Nothing listens before :meth:`start`.

        Args:
            batcher: not started yet.
            tokenizer: the model's.
            host: the address to listen on; 127.0.0.1 can be reached from this machine only.
            port: the port to listen on; 0: any that is free.
        """
        self.batcher = batcher
        self.host = host
        self.port = port
        self.grpc = grpc.aio.server(
            interceptors=[Door(batcher.core.max_positions - 1, tokenizer.longest_token)],
            options=[
                ("grpc.so_reuseport", 0),  # otherwise two servers may share a port, and clients reach either
                ("grpc.keepalive_time_ms", KEEPALIVE),  # two hours, if it is left out
                ("grpc.keepalive_timeout_ms", KEEPALIVE),
                ("grpc.http2.ping_timeout_ms", KEEPALIVE),  # the longer of the two counts
                # A connection for which no file is left would wait for ever: it is closed at once instead.
                ("grpc.max_allowed_incoming_connections", most_connections()),
            ],
            maximum_concurrent_rpcs=batcher.core.num_seats + batcher.max_queue + SPARE_CALLS,
        )
        self.health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # unknown to the stubs
        pb_grpc.add_TinyLlmServicer_to_server(TinyLlmService(batcher, tokenizer), self.grpc)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.grpc)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self.grpc
        )

    async def start(self) -> str:
        """Start the batcher and listen. When the batcher's loop ends, the health is NOT_SERVING.

        Returns:
            the address, with the port that was chosen.

        Raises:
            OSError: the address can't be listened on.
        """
        try:
            # Python says why it can't listen; gRPC prints lines of its own.
            socket.create_server((self.host, self.port)).close()
            self.port = self.grpc.add_insecure_port(self.address)
        except (OSError, RuntimeError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise OSError(f"can't listen on {self.address}: {reason}") from error
        asyncio.get_running_loop().set_default_executor(Threads(THREADS))
        self.batcher.start()
        await self.grpc.start()
        for name in ("", SERVICE):
            await self.health.set(name, SERVING)
        self.watch = asyncio.create_task(self._watch())
        return self.address

    @property
    def address(self) -> str:
        """Where clients reach the server."""
        return f"{self.host}:{self.port}"

    async def stop(self, grace: float = 30.0) -> None:
        """Take no new calls, and let the calls that run finish, for ``grace`` seconds at most; then end."""
        await self.health.enter_graceful_shutdown()
        await self.grpc.stop(grace)
        # No call is left to answer. The batcher ends after the step that is running.
        await asyncio.to_thread(self.batcher.stop, drain=False)

    async def _watch(self) -> None:
        await asyncio.shield(asyncio.wrap_future(self.batcher.ended))
        await self.health.enter_graceful_shutdown()
