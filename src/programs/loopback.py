"""A server in this process and a client for it: what shows that the tokens are the same through gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc

from coursekit.errors import CourseError
from programs.engine import Engine
from programs.ragged import requests_for, state_for

if TYPE_CHECKING:
    from tiny_llm.ragged.batcher import Batcher
    from tiny_llm.ragged.protocol.tiny_llm_pb2 import GenerateReply

SECONDS = 600.0
"""Nothing here takes as long; whoever waits longer waits for ever."""


def generate_served(
    engine: Engine, prompts: Sequence[Sequence[int]], max_tokens: Sequence[int], slots: int, capacity: int
) -> list[list[int]]:
    """Send all prompts to a server at once, each in a call of its own, and return the tokens of each.

    Raises:
        CourseError: a call failed.
    """
    from tiny_llm.ragged.batcher import Batcher

    requests = requests_for(prompts, max_tokens, engine.tokenizer.end_ids)
    batcher = Batcher(engine.model, state_for(engine.model, requests, slots), capacity)
    return asyncio.run(_exchange(engine, batcher, prompts, max_tokens))


async def _exchange(
    engine: Engine, batcher: Batcher, prompts: Sequence[Sequence[int]], max_tokens: Sequence[int]
) -> list[list[int]]:
    from tiny_llm.ragged.grpc_server import Server

    server = Server(batcher, engine.tokenizer)
    address = await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            calls = [_call(channel, *each) for each in zip(prompts, max_tokens, strict=True)]
            replies = await asyncio.wait_for(asyncio.gather(*calls), SECONDS)
    except grpc.aio.AioRpcError as error:
        raise CourseError(f"the server answered {error.code().name}: {error.details()}") from None
    finally:
        await server.stop(grace=0)
    return [list(reply.token_ids) for reply in replies]


async def _call(channel: grpc.aio.Channel, prompt: Sequence[int], max_tokens: int) -> GenerateReply:
    from tiny_llm.ragged.protocol import tiny_llm_pb2 as pb
    from tiny_llm.ragged.protocol.tiny_llm_pb2_grpc import TinyLlmStub

    message = pb.GenerateRequest(token_ids=pb.TokenIds(ids=prompt), max_tokens=max_tokens)
    return await TinyLlmStub(channel).Run(message)
