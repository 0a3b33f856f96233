"""Answers as server-sent events (Day 4.6, given code).

Source: the HTML standard, section 9.2, and OpenAI's API reference.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Any

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from tiny_llm.server.answering import Answering, ClientGone, unless_gone
from tiny_llm.server.answers import Writer, usage
from tiny_llm.server.errors import as_api_error

DONE = b"data: [DONE]\n\n"


def event(data: dict[str, Any]) -> bytes:
    """An event of one line: JSON has no line ends inside."""
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


async def events(answering: Answering, writer: Writer, include_usage: bool) -> AsyncGenerator[bytes]:
    """The events of a stream: chunks with what is new, one with the numbers of tokens if wanted, and the end.

    An error becomes the last event: the status was sent long before. Nothing says ``[DONE]`` then.
    """
    no_usage = {"usage": None} if include_usage else {}
    tokens = 0
    for choice in writer.opening(writer.n * len(answering.generations)):
        yield event(writer.envelope(writer.piece, [choice], **no_usage))
    try:
        async with aclosing(answering.deltas()) as deltas:
            async for number, delta in deltas:
                tokens += len(delta.token_ids)
                if delta.text or delta.finish_reason or delta.logprobs:
                    choice = writer.change(number * writer.n + delta.index, delta)
                    yield event(writer.envelope(writer.piece, [choice], **no_usage))
    except Exception as error:
        yield event(as_api_error(error).body)
        return
    if include_usage:
        prompt = sum(each.prompt_tokens for each in answering.generations)
        cached = sum(each.cached_tokens for each in answering.generations)
        yield event(writer.envelope(writer.piece, [], usage=usage(prompt, cached, tokens)))
    yield DONE


class EventStream(Response):
    """A response that is sent piece by piece; when the client goes away, the pieces are closed."""

    media_type = "text/event-stream"

    def __init__(self, pieces: AsyncGenerator[bytes], at_end: Callable[[], None]) -> None:
        """Send these; at the end, however it comes, something is called."""
        self.pieces = pieces
        self.at_end = at_end
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them all, unless the client goes away."""
        try:
            with suppress(ClientGone):
                await unless_gone(receive, self._send_all(send))
        finally:
            self.at_end()

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self.pieces) as pieces:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
