"""The batcher as a gRPC service: whole answers, and answers that come piece by piece (Day 3.7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import NoReturn

import grpc

from tiny_llm.generate import StreamDecoder
from tiny_llm.loading.errors import WeightsError
from tiny_llm.ragged.batcher import Batcher, Closed, QueueFull
from tiny_llm.ragged.protocol import tiny_llm_pb2 as pb
from tiny_llm.ragged.protocol import tiny_llm_pb2_grpc as pb_grpc
from tiny_llm.ragged.ticket import OnToken
from tiny_llm.request import Request
from tiny_llm.sampler import Sampler, SamplingParams
from tiny_llm.tokenizer import Tokenizer

MAX_TOKENS = 128
"""How long an answer may get if the client doesn't say."""

PARAMETERS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
"""The fields of a request that are fields of SamplingParams."""

Context = grpc.aio.ServicerContext
Code = grpc.StatusCode


def read_prompt(message: pb.GenerateRequest, tokenizer: Tokenizer) -> list[int]:
    """The token ids of what a client sent.

    Raises:
        ValueError: it sent nothing, a prompt to a model without a chat form, or a token id that the vocabulary
            doesn't have.
    """
    raise NotImplementedError("Week 3 Day 7 Task 4: Reading a message")


def read_request(message: pb.GenerateRequest, tokenizer: Tokenizer) -> Request:
    """The request that a client's message asks for, with a sampler of its own.

    Raises:
        ValueError: something in it makes no sense; the message says what, and what is wanted.
    """
    raise NotImplementedError("Week 3 Day 7 Task 4: Reading a message")


def finish_reason(output: list[int], request: Request) -> pb.FinishReason:
    """Why an answer has ended where it has."""
    raise NotImplementedError("Week 3 Day 7 Task 4: Reading a message")


async def refuse(context: Context, error: Exception) -> NoReturn:
    """End a call whose request was not taken, with the status that says what its client can do.

    ValueError: INVALID_ARGUMENT, send something else. QueueFull: RESOURCE_EXHAUSTED, try again later. Closed:
    UNAVAILABLE, try another server.
    """
    raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")


class TinyLlmService(pb_grpc.TinyLlmServicer):
    """The two calls of the service. They share one event loop, and nothing in them may hold it up.

    When a client cancels or goes away, or its deadline passes, gRPC cancels the coroutine of its call. That has to
    cancel the future, so that the batcher frees slot and pages.
    """

    def __init__(self, batcher: Batcher, tokenizer: Tokenizer) -> None:
        """Serve from a batcher that was started."""
        self.batcher = batcher
        self.tokenizer = tokenizer

    async def Run(self, message: pb.GenerateRequest, context: Context) -> pb.GenerateReply:
        """The whole answer."""
        raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")

    async def Stream(self, message: pb.GenerateRequest, context: Context) -> AsyncIterator[pb.Piece]:
        """The answer: a piece for each token, and a last one with what text is left and why it ended."""
        raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")

    async def take(
        self, message: pb.GenerateRequest, context: Context, on_token: OnToken = lambda token: None
    ) -> tuple[Request, Future[list[int]]]:
        """Read a request and submit it, or end the call with what is wrong with it."""
        raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")

    async def output_of(self, future: Future[list[int]], context: Context) -> list[int]:
        """Wait for an answer; if this is cancelled, so is the future.

        An answer that fails ends the call: UNAVAILABLE when the batcher was stopped, otherwise INTERNAL, for then the
        client has done nothing wrong.
        """
        raise NotImplementedError("Week 3 Day 7 Task 5: Run and Stream")
