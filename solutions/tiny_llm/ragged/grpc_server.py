"""A gRPC server around the service: address, health, reflection, and a graceful end (given code)."""

from __future__ import annotations

import asyncio

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tiny_llm.ragged.batcher import Batcher
from tiny_llm.ragged.grpc_service import TinyLlmService
from tiny_llm.ragged.protocol import tiny_llm_pb2 as pb
from tiny_llm.ragged.protocol import tiny_llm_pb2_grpc as pb_grpc
from tiny_llm.tokenizer import Tokenizer

SERVICE = pb.DESCRIPTOR.services_by_name["TinyLlm"].full_name
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


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
        self.address = f"{host}:{port}"
        # Otherwise two servers may share a port, and clients reach either.
        self.grpc = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self.health = health.aio.HealthServicer()  # type: ignore[attr-defined]  # unknown to the stubs
        pb_grpc.add_TinyLlmServicer_to_server(TinyLlmService(batcher, tokenizer), self.grpc)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self.grpc)
        reflection.enable_server_reflection(
            (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self.grpc
        )

    async def start(self) -> str:
        """Start the batcher and listen.

        Returns:
            the address, with the port that was chosen.

        Raises:
            OSError: the address can't be listened on.
        """
        try:
            port = self.grpc.add_insecure_port(self.address)
        except RuntimeError as error:
            raise OSError(f"can't listen on {self.address}") from error
        self.address = f"{self.address.rpartition(':')[0]}:{port}"
        self.batcher.start()
        await self.grpc.start()
        for name in ("", SERVICE):
            await self.health.set(name, SERVING)
        return self.address

    async def stop(self, grace: float = 30.0) -> None:
        """Take no new calls, and let the calls that run finish, for ``grace`` seconds at most; then end."""
        await self.health.enter_graceful_shutdown()
        await self.grpc.stop(grace)
        # No call is left to answer. The batcher ends after the step that is running.
        await asyncio.to_thread(self.batcher.stop, drain=False)
