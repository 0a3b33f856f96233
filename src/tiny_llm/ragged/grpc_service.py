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
    raise NotImplementedError("Week 3 Day 7 Task 4: Reading a message")


def read_request(message: pb.GenerateRequest, tokenizer: Tokenizer) -> Request:
    """The request that a client's message asks for, with a sampler of its own.

    Raises:
        ValueError: a field has a value that isn't allowed; the text names the field, and says what is allowed.
    """
    raise NotImplementedError("Week 3 Day 7 Task 4: Reading a message")


def finish_reason(output: list[int], request: Request) -> pb.FinishReason:
    """STOP if the last token of the output is one of the request's end tokens; else, and without a token, LENGTH."""
    raise NotImplementedError("Week 3 Day 7 Task 4: Reading a message")


async def refuse(context: Context, error: Exception) -> NoReturn:
    """End a call whose request was not taken: with a status that says what the client can do, and the error's text.

    ValueError: INVALID_ARGUMENT, send something else. QueueFull: RESOURCE_EXHAUSTED, try again later. Closed:
    UNAVAILABLE, try another server. Any other: INTERNAL.
    """
    raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")


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
        raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")

    async def Stream(self, message: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.Piece]:
        """The answer: a piece for each token, then one with the rest of the text and the reason why it ended."""
        raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")

    async def take(
        self, message: pb.GenerateRequest, context: Context, on_token: OnToken = lambda token: None
    ) -> tuple[Request, Future[list[int]]]:
        """Read a request and submit it, or end the call as :func:`refuse` says.

        While the batcher has no room (``require_room``), the message isn't read.
        """
        raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")

    async def output_of(self, future: Future[list[int]], context: Context) -> list[int]:
        """Wait for an answer. If this coroutine is cancelled, so is the future.

        An answer that fails ends the call: with UNAVAILABLE and the error's text when the batcher was stopped,
        otherwise with INTERNAL, the name of the error's type and its text, since the client has done nothing wrong.
        """
        raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")
