"""The batcher as a gRPC service: whole answers, and answers that come piece by piece (Day 3.7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import NoReturn

import grpc

from tiny_llm.generate import StreamDecoder
from tiny_llm.loading.errors import WeightsError
from tiny_llm.ragged.batcher import Batcher
from tiny_llm.ragged.errors import Closed, QueueFull
from tiny_llm.ragged.protocol import tiny_llm_pb2 as pb
from tiny_llm.ragged.protocol import tiny_llm_pb2_grpc as pb_grpc
from tiny_llm.ragged.ticket import OnToken
from tiny_llm.request import Request
from tiny_llm.sampler import Sampler, SamplingParams
from tiny_llm.tokenizer import Tokenizer

MAX_TOKENS = 128
"""How many tokens an answer may have if the client doesn't say."""

PARAMETERS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
"""The fields of a request that are fields of SamplingParams."""

Context = grpc.aio.ServicerContext
Code = grpc.StatusCode


def read_prompt(message: pb.GenerateRequest, tokenizer: Tokenizer) -> list[int]:
    """The token ids of the message's prompt, text or list of token ids.

    Raises:
        ValueError: the message has none of the three, an empty prompt, a prompt for a model without a chat form, or a
            token id that the vocabulary doesn't have.
    """
    kind = message.WhichOneof("input")
    if kind == "prompt" and message.prompt:
        try:
            return tokenizer.encode_chat([{"role": "user", "content": message.prompt}])
        except WeightsError as error:
            raise ValueError("this model has no chat form for a prompt: send `text` instead") from error
    if kind == "text":
        return tokenizer.encode(message.text, control_tokens=False)
    if kind == "token_ids":
        unknown = [token for token in message.token_ids.ids if token >= tokenizer.vocab_size]
        if unknown:
            raise ValueError(f"token id {unknown[0]} is not in the vocabulary of {tokenizer.vocab_size}")
        return list(message.token_ids.ids)
    raise ValueError("there is no prompt: fill in one of prompt, text and token_ids")


def read_request(message: pb.GenerateRequest, tokenizer: Tokenizer) -> Request:
    """The request that a client's message asks for, with a sampler of its own.

    Raises:
        ValueError: a field has a value that isn't allowed; the text names the field, and says what is allowed.
    """
    given = {name: getattr(message, name) for name in PARAMETERS if message.HasField(name)}
    max_tokens = message.max_tokens if message.HasField("max_tokens") else MAX_TOKENS
    if max_tokens < 1:
        raise ValueError(f"max_tokens is {max_tokens}; it must be 1 or more")
    sampler = Sampler(SamplingParams(**given))
    return Request(read_prompt(message, tokenizer), max_tokens, tokenizer.end_ids, sampler)


def finish_reason(output: list[int], request: Request) -> pb.FinishReason:
    """STOP if the last token of the output is one of the request's end tokens; else, and without a token, LENGTH."""
    ended = bool(output) and output[-1] in request.end_ids
    return pb.FINISH_REASON_STOP if ended else pb.FINISH_REASON_LENGTH


async def refuse(context: Context, error: Exception) -> NoReturn:
    """End a call whose request was not taken: with a status that says what the client can do, and the error's text.

    ValueError: INVALID_ARGUMENT, send something else. QueueFull: RESOURCE_EXHAUSTED, try again later. Closed:
    UNAVAILABLE, try another server. Any other: INTERNAL.
    """
    codes = {ValueError: Code.INVALID_ARGUMENT, QueueFull: Code.RESOURCE_EXHAUSTED, Closed: Code.UNAVAILABLE}
    await context.abort(codes.get(type(error), Code.INTERNAL), str(error))


class TinyLlmService(pb_grpc.TinyLlmServicer):
    """The two calls of the service. They share one event loop, so neither may keep it busy or make it wait.

    When a client cancels or goes away, or its deadline passes, gRPC cancels the coroutine of its call. That must
    cancel the future, so that the batcher frees the seat and the pages.
    """

    def __init__(self, batcher: Batcher, tokenizer: Tokenizer) -> None:
        """Serve from a batcher that was started."""
        self.batcher = batcher
        self.tokenizer = tokenizer

    async def Run(self, message: pb.GenerateRequest, context: Context) -> pb.GenerateReply:
        """The whole answer."""
        request, future = await self.take(message, context)
        output = await self.output_of(future, context)
        return pb.GenerateReply(
            text=self.tokenizer.decode(output),
            token_ids=output,
            finish_reason=finish_reason(output, request),
            prompt_tokens=request.prompt_len,
        )

    async def Stream(self, message: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.Piece]:
        """The answer: a piece for each token, then one with the rest of the text and the reason why it ended."""
        loop = asyncio.get_running_loop()
        tokens: asyncio.Queue[int | None] = asyncio.Queue()  # None comes after the last token

        def put(token: int | None) -> None:
            # Called on the batcher's thread. Only the event loop may touch the queue, so it is asked to.
            loop.call_soon_threadsafe(tokens.put_nowait, token)

        request, future = await self.take(message, context, put)
        future.add_done_callback(lambda _: put(None))
        decoder = StreamDecoder(self.tokenizer)
        try:
            while (token := await tokens.get()) is not None:
                yield pb.Piece(text=decoder.push(token), token_ids=[token])
            output = await self.output_of(future, context)
            yield pb.Piece(text=decoder.flush(), finish_reason=finish_reason(output, request))
        finally:
            future.cancel()

    async def take(
        self, message: pb.GenerateRequest, context: Context, on_token: OnToken = lambda token: None
    ) -> tuple[Request, Future[list[int]]]:
        """Read a request and submit it, or end the call as :func:`refuse` says.

        While the batcher has no room (``require_room``), the message isn't read.
        """
        try:
            self.batcher.require_room()  # to refuse costs nothing; to read costs time, which others need
            # A long text takes a while to become tokens; meanwhile the event loop serves other calls.
            request = await asyncio.to_thread(read_request, message, self.tokenizer)
            return request, self.batcher.submit(request, on_token)
        except Exception as error:
            await refuse(context, error)

    async def output_of(self, future: Future[list[int]], context: Context) -> list[int]:
        """Wait for an answer. If this coroutine is cancelled, so is the future.

        An answer that fails ends the call: with UNAVAILABLE and the error's text when the batcher was stopped,
        otherwise with INTERNAL, the name of the error's type and its text, since the client has done nothing wrong.
        """
        try:
            return await asyncio.wrap_future(future)
        except Closed as error:
            await context.abort(Code.UNAVAILABLE, str(error))
        except Exception as error:
            await context.abort(Code.INTERNAL, f"{type(error).__name__}: {error}")
