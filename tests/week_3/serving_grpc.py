"""The service by itself, with stand-ins around it, and a whole server that real clients call over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc

from .patience import hangs, limit
from .serving import Letters, batcher_of, check_at_rest, let_go, watched
from .serving_threads import ThreadErrors, within

Code = grpc.StatusCode

SHORT = 3.0
"""Seconds for a call over loopback, once two tests have waited in vain."""


def message_of(lab: Any, **fields: Any) -> Any:
    """A GenerateRequest; `ids` are its token ids."""
    pb = lab.ragged.protocol.tiny_llm_pb2
    if "ids" in fields:
        fields["token_ids"] = pb.TokenIds(ids=fields.pop("ids"))
    return pb.GenerateRequest(**fields)


class ServiceErrors(logging.Handler):
    """Collects what the service's methods raise: gRPC logs it, and tells the client as little as it can.

    `tell` is called when there is something.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self.errors: list[BaseException] = []
        self.tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # Bytes that are no message never come to the service.
        if error is not None and not isinstance(error, DecodeError):
            self._note(error)

    def handle_of_loop(self, loop: Any, context: dict[str, Any]) -> None:
        """Errors that no coroutine gets. A task that failed is the test's own: it awaits it, or not."""
        if "exception" in context and "future" not in context:
            self._note(context["exception"])

    def _note(self, error: BaseException) -> None:
        self.errors.append(error)
        self.tell()

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Raise the first of them at the end."""
        logger = logging.getLogger("grpc")
        logger.addHandler(self)
        before, logger.propagate = logger.propagate, False
        try:
            yield
        except BaseException:
            self._raise()
            raise
        finally:
            logger.removeHandler(self)
            logger.propagate = before
        self._raise()

    def _raise(self) -> None:
        if self.errors:
            raise self.errors[0]


class Loopback:
    """A server that listens on 127.0.0.1, and a client of it."""

    def __init__(self, lab: Any, batcher: Any, server: Any, channel: Any) -> None:
        self.lab = lab
        self.batcher = batcher
        self.core = batcher.core
        self.server = server
        self.channel = channel
        self.stub = lab.ragged.protocol.tiny_llm_pb2_grpc.TinyLlmStub(channel)
        self.health = health_pb2_grpc.HealthStub(channel)

    def run(self, *, deadline: float | None = None, **fields: Any) -> Any:
        """A call of Run: await it."""
        return self.stub.Run(message_of(self.lab, **fields), timeout=deadline or limit(SHORT))

    def stream(self, *, deadline: float | None = None, **fields: Any) -> Any:
        """A call of Stream: iterate over it."""
        return self.stub.Stream(message_of(self.lab, **fields), timeout=deadline or limit(SHORT))

    async def tokens(self, *, deadline: float | None = None, **fields: Any) -> list[int]:
        """All tokens of a call of Stream."""
        return [
            token async for piece in self.stream(deadline=deadline, **fields) for token in piece.token_ids
        ]

    async def status(self, call: Any) -> tuple[Any, str]:
        """With which status a call ends."""
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return error.code(), error.details() or ""
        return Code.OK, ""

    async def until(self, condition: Callable[[Any], bool], what: str) -> None:
        """Until the batcher's figures meet a condition."""
        await asyncio.to_thread(self.batcher.until, condition, what)

    async def step(self) -> None:
        """Until the engine has begun one more step."""
        await asyncio.to_thread(self.core.toy_await)

    async def check(self, service: str = "") -> Any:
        """What the health service says."""
        reply = await self.health.Check(health_pb2.HealthCheckRequest(service=service), timeout=limit(SHORT))
        return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)


def over_grpc(
    lab: Any,
    scenario: Callable[[Loopback], Coroutine[Any, Any, None]],
    core: Any = None,
    max_queue: int = 50,
    **options: Any,
) -> Any:
    """Serve, let the scenario call, stop; then nothing runs, all pages are free, and all futures are settled.

    The engine is a toy with these options, if no other is given. An exception of the service's methods or of the
    batcher's loop is raised in the test. Returns the batcher.
    """
    __tracebackhide__ = True
    batcher = batcher_of(lab, watched(lab), core, max_queue, **options)
    seconds = 2 * limit(SHORT)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(errors.handle_of_loop)
        server = lab.ragged.grpc_server.Server(batcher, Letters())
        await server.start()
        own = [("grpc.use_local_subchannel_pool", 1)]
        try:
            async with grpc.aio.insecure_channel(server.address, own) as channel, asyncio.timeout(seconds):
                await scenario(Loopback(lab, batcher, server, channel))
        except BaseException as error:
            give_up_all()
            if isinstance(error, TimeoutError):
                raise hangs(f"the calls have not ended after {seconds:g} s") from None
            raise
        finally:
            let_go(batcher.core)
            async with asyncio.timeout(limit(SHORT)):
                await server.stop(grace=0)

    def give_up_all() -> None:
        for future in list(batcher.futures):
            future.cancel()

    errors = ServiceErrors(batcher.give_up)
    with errors.collected(), ThreadErrors(batcher.give_up).collected():
        try:
            within(lambda: asyncio.run(main()), "the server", seconds + 1)
        except BaseException:  # a call that blocks the event loop, or a thread, waits for one of these
            let_go(batcher.core)
            give_up_all()
            raise
        assert not batcher.thread.is_alive(), "the server has stopped, and the batcher's loop goes on"
        check_at_rest(batcher, batcher.futures)
    return batcher
