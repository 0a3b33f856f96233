"""A server that listens on 127.0.0.1 in the process of the learner's code, and a client of it there."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from coursekit.beside import beside

from .beside_event_loop import EventLoop, Job
from .beside_service import read_piece, read_reply

CLIENT = Path(__file__).with_name("beside_killed_client.py")


class ServiceErrors(logging.Handler):
    """Collects what the service's methods raise: gRPC logs it, and tells the client as little as it can."""

    def __init__(self, tell: Callable[[], None]) -> None:
        """Args: tell: called when there is something."""
        super().__init__()
        self.errors: list[BaseException] = []
        self._tell = tell
        self._logger = logging.getLogger("grpc")
        self._logger.addHandler(self)
        self._before, self._logger.propagate = self._logger.propagate, False

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # Bytes that are no message never come to the service.
        if error is not None and not isinstance(error, DecodeError):
            self.note(error)

    def note(self, error: BaseException) -> None:
        self.errors.append(error)
        self._tell()

    def end(self) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = self._before


class LoopbackLoop(EventLoop):
    """The event loop of the server and its client. What its methods start are calls; see :meth:`status`."""

    server: Any
    stub: Any
    channel: Any

    def __init__(self, tell: Callable[[], None]) -> None:
        self._errors = ServiceErrors(tell)
        super().__init__(debug=False)

    def open(self, server: Any, stub: Any, batcher: Any, tokenizer: Any) -> Job:
        """Serve; `server` and `stub` are classes."""
        return self.start(self._open, server, stub, batcher, tokenizer)

    async def _open(self, job: Job, server: Any, stub: Any, batcher: Any, tokenizer: Any) -> str:
        self.server = server(batcher, tokenizer)
        await self.server.start()
        own = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.aio.insecure_channel(self.server.address, own)
        self.stub = stub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)
        return str(self.server.address)

    def run(self, message: Any, timeout: float) -> Job:
        return self.start(self._ask, message, timeout)

    async def _ask(self, job: Job, message: Any, timeout: float) -> Any:
        return read_reply(await self.stub.Run(message, timeout=timeout))

    def stream(self, message: Any, timeout: float, leave: int | None = None) -> Job:
        """The items are the pieces. The client cancels after so many of them, if it is told to."""
        return self.start(self._stream, message, timeout, leave)

    async def _stream(self, job: Job, message: Any, timeout: float, leave: int | None) -> None:
        call = self.stub.Stream(message, timeout=timeout)
        if leave == 0:
            call.cancel()
            return
        async for piece in call:
            job.add(read_piece(piece))
            if len(job.items()) == leave:
                call.cancel()
                return

    def raw(self, method: str, data: bytes, timeout: float) -> Job:
        """A call with bytes that may be no message."""
        return self.start(self._raw, method, data, timeout)

    async def _raw(self, job: Job, method: str, data: bytes, timeout: float) -> None:
        await self.channel.unary_unary(method)(data, timeout=timeout)

    def check(self, service: str, timeout: float) -> Job:
        """What the health service says."""
        return self.start(self._check, service, timeout)

    async def _check(self, job: Job, service: str, timeout: float) -> str:
        request = health_pb2.HealthCheckRequest(service=service)
        return _name((await self.health.Check(request, timeout=timeout)).status)

    def watch(self, timeout: float) -> Job:
        """The items are what the health service says, each time that it changes."""
        return self.start(self._watch, timeout)

    async def _watch(self, job: Job, timeout: float) -> None:
        async for reply in self.health.Watch(health_pb2.HealthCheckRequest(), timeout=timeout):
            job.add(_name(reply.status))

    def services(self, timeout: float) -> Job:
        """The names of the services, by reflection."""
        return self.start(self._services, timeout)

    async def _services(self, job: Job, timeout: float) -> list[str]:
        stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        questions = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        answers = [answer async for answer in stub.ServerReflectionInfo(questions, timeout=timeout)]
        return [each.name for each in answers[0].list_services_response.service]

    def stop(self, grace: float) -> Job:
        return self.start(self._stop, grace)

    async def _stop(self, job: Job, grace: float) -> None:
        await self.server.stop(grace=grace)

    def leave(self) -> Job:
        """The client goes, and the server ends."""
        return self.start(self._leave)

    async def _leave(self, job: Job) -> None:
        if hasattr(self, "channel"):
            await self.channel.close()
        if hasattr(self, "server"):
            await self.server.stop(grace=0)

    def status(self, job: Job) -> tuple[str, str]:
        """With which status a call has ended, and its details."""
        if job.error is None:
            return "OK", ""
        if not isinstance(job.error, grpc.aio.AioRpcError):
            raise job.error
        return job.error.code().name, job.error.details() or ""

    def errors(self) -> list[BaseException]:
        """What the service's methods have raised so far."""
        return list(self._errors.errors)

    def close(self, seconds: float) -> bool:
        self._errors.end()
        return super().close(seconds)

    def _note(self, loop: Any, context: dict[str, Any]) -> None:
        """Errors that no coroutine gets. A task that failed is the test's own: it awaits it, or not."""
        if "exception" in context and "future" not in context:
            self._errors.note(context["exception"])


def _name(status: int) -> str:
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


@beside
def new_loopback_loop(tell: Callable[[], None]) -> Any:
    return LoopbackLoop(tell)


@beside
def new_client(address: str, method: str, message: bytes) -> Any:
    """A process that calls Stream of a server, and writes a line for each piece."""
    return Popen([sys.executable, str(CLIENT), address, method, message.hex()], stdout=PIPE)
