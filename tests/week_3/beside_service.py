"""The service's methods on an event loop, with what stands for gRPC's side of a call; messages as plain values."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import grpc

from coursekit.beside import beside

from .beside_answers import Mistake
from .beside_event_loop import EventLoop, Job


class Aborted(Exception):
    """How a call ends when its service aborts it."""


class Context:
    """Stands for gRPC's side of a call: `ended` is the status that the service has ended it with, by its name."""

    def __init__(self) -> None:
        self.ended: tuple[str, str] | None = None

    async def abort(self, code: Any, details: str = "") -> None:
        assert isinstance(code, grpc.StatusCode), f"`abort` takes a grpc.StatusCode, not {code!r}"
        if self.ended is not None:
            raise Mistake(
                f"`abort` has ended the call with {self.ended[0]}, by raising, and is called again, with {code}: "
                "a `try` with `except Exception` around `abort` catches it"
            )
        self.ended = code.name, details
        raise Aborted(f"{code}: {details}")


@beside
def new_context() -> Any:
    return Context()


def read_piece(piece: Any) -> tuple[str, tuple[int, ...], int]:
    """Its text, token ids and finish_reason."""
    return piece.text, tuple(piece.token_ids), int(piece.finish_reason)


def read_reply(reply: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Its text, token ids, finish_reason and prompt_tokens."""
    return reply.text, tuple(reply.token_ids), int(reply.finish_reason), int(reply.prompt_tokens)


class ServiceLoop(EventLoop):
    """An event loop on which the service's methods are called."""

    def run(self, service: Any, message: Any, context: Context) -> Job:
        return self.start(_run, service, message, context)

    def stream(self, service: Any, message: Any, context: Context) -> Job:
        """Its items are the pieces."""
        return self.start(_stream, service, message, context, None)

    def read_one(self, service: Any, message: Any, context: Context) -> Job:
        """The stream is closed after the first piece."""
        return self.start(_stream, service, message, context, 1)

    def refuse(self, refuse: Any, context: Context, error: Exception) -> Job:
        return self.start(_awaited, refuse, context, error)

    def future(self, future: Future[Any]) -> Job:
        return self.start(_awaited, asyncio.wrap_future, future)

    def aborted(self, job: Job) -> bool:
        """Whether it has ended because a service has aborted its call."""
        return isinstance(job.error, Aborted)


async def _awaited(job: Job, function: Callable[..., Any], *arguments: Any) -> Any:
    return await function(*arguments)


async def _run(job: Job, service: Any, message: Any, context: Context) -> Any:
    return read_reply(await service.Run(message, context))


async def _stream(job: Job, service: Any, message: Any, context: Context, count: int | None) -> None:
    stream = service.Stream(message, context)
    if inspect.iscoroutine(stream):  # without a `yield`; it is run to its end here
        await stream
        raise AssertionError("Stream must `yield` its pieces, and has returned")
    async with contextlib.aclosing(stream):
        async for piece in stream:
            job.add(read_piece(piece))
            if len(job.items()) == count:
                break


@beside
def new_service_loop() -> Any:
    return ServiceLoop()
