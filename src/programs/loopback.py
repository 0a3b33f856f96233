"""A server in this process and a client for it: what shows that the tokens are the same through gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc

from coursekit.errors import CourseError
from programs.loaded import LoadedModel

if TYPE_CHECKING:
    from tiny_llm.engine_core import EngineCore
    from tiny_llm.ragged.batcher import Batcher
    from tiny_llm.ragged.protocol.tiny_llm_pb2 import GenerateReply
    from tiny_llm.request import Request
    from tiny_llm.tokenizer import Tokenizer

SECONDS = 600.0
"""Nothing here takes as long: a call that is still waiting then will never end."""


def serve_all(loaded: LoadedModel, core: EngineCore, requests: Sequence[Request]) -> None:
    """Send all requests to a server at once, each in a call of its own, and append the tokens that come back.

    Raises:
        CourseError: a call failed.
    """
    from tiny_llm.ragged.batcher import Batcher

    replies = asyncio.run(_exchange(loaded, Batcher(core), requests))
    for request, reply in zip(requests, replies, strict=True):
        request.token_ids += reply.token_ids


async def _exchange(
    loaded: LoadedModel, batcher: Batcher, requests: Sequence[Request]
) -> list[GenerateReply]:
    from tiny_llm.ragged.grpc_server import Server

    server = Server(batcher, loaded.tokenizer)
    address = await server.start()
    try:
        return await _ask(address, requests)
    finally:
        await server.stop(grace=0)


async def calling(batcher: Batcher, tokenizer: Tokenizer, requests: Sequence[Request]) -> list[GenerateReply]:
    """Send all requests to a service in front of a batcher that runs already.

    Raises:
        CourseError: a call failed.
    """
    from tiny_llm.ragged.grpc_service import TinyLlmService
    from tiny_llm.ragged.protocol.tiny_llm_pb2_grpc import add_TinyLlmServicer_to_server

    server = grpc.aio.server()
    add_TinyLlmServicer_to_server(TinyLlmService(batcher, tokenizer), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        return await _ask(f"127.0.0.1:{port}", requests)
    finally:
        await server.stop(grace=0)


async def _ask(address: str, requests: Sequence[Request]) -> list[GenerateReply]:
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            calls = [_call(channel, request) for request in requests]
            return await asyncio.wait_for(asyncio.gather(*calls), SECONDS)
    except grpc.aio.AioRpcError as error:
        raise CourseError(f"the server answered {error.code().name}: {error.details()}") from None


async def _call(channel: grpc.aio.Channel, request: Request) -> GenerateReply:
    from tiny_llm.ragged.protocol import tiny_llm_pb2 as pb
    from tiny_llm.ragged.protocol.tiny_llm_pb2_grpc import TinyLlmStub

    message = pb.GenerateRequest(token_ids=pb.TokenIds(ids=request.prompt_ids), max_tokens=request.max_tokens)
    return await TinyLlmStub(channel).Run(message)
