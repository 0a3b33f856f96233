"""The way of a message to the service: its bytes are read, and its length is checked (given code, Day 3.7).

Bytes that are no message, and a text that is longer than any that the engine could take, are refused here with
INVALID_ARGUMENT. To make token ids out of megabytes would cost seconds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tiny_llm.ragged.protocol import tiny_llm_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["TinyLlm"].full_name


class Door(grpc.aio.ServerInterceptor):
    """Reads the requests of our own service; other services read theirs themselves."""

    def __init__(self, most_tokens: int, longest_token: int) -> None:
        """Refuse longer prompts than these.

        Args:
            most_tokens: how many tokens a prompt may have at most.
            longest_token: how many characters a token stands for at most.
        """
        self.most_tokens = most_tokens
        self.most_characters = most_tokens * longest_token

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The method that is called, with :meth:`read` in front of it."""
        handler = await continuation(details)
        if handler is None or not str(details.method).startswith(f"/{SERVICE}/"):
            return handler

        async def run(data: bytes, context: grpc.aio.ServicerContext) -> Any:
            return await handler.unary_unary(await self.read(data, context), context)

        async def stream(data: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[Any]:
            async with aclosing(handler.unary_stream(await self.read(data, context), context)) as pieces:
                async for piece in pieces:
                    yield piece

        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(stream, None, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(run, None, handler.response_serializer)

    async def read(self, data: bytes, context: grpc.aio.ServicerContext) -> pb.GenerateRequest:
        """The message that some bytes are; a call whose message is refused ends here."""
        try:
            message = pb.GenerateRequest.FromString(data)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "these bytes are no GenerateRequest")
        reason = self.refusal(message)
        if reason is not None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        return message

    def refusal(self, message: pb.GenerateRequest) -> str | None:
        """Why no engine here can take this prompt, however it is cut into tokens; None if one might."""
        characters = len(message.prompt) + len(message.text)  # at most one of the two was filled in
        if characters > self.most_characters:
            return (
                f"the prompt has {characters} characters; at most {self.most_characters} fit into "
                f"{self.most_tokens} tokens"
            )
        if len(message.token_ids.ids) > self.most_tokens:
            return f"the prompt has {len(message.token_ids.ids)} tokens; at most {self.most_tokens} fit"
        return None
