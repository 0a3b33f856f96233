"""A whole server that real clients call over loopback, step by step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from .beside_loopback import new_client, new_loopback_loop
from .patience import limit
from .serving import Letters, batcher_of, check_at_rest, let_go, watched
from .serving_calls import Call
from .serving_grpc import SHORT, message_of
from .serving_threads import ThreadErrors


class Rpc(Call):
    """A call over loopback that goes on."""

    def status(self) -> tuple[str, str]:
        """With which status it ends, by its name, and its details."""
        __tracebackhide__ = True
        self.end()
        code, details = self._loop.status(self._job)
        return code, details

    def tokens(self) -> list[int]:
        """All tokens of a stream, once it has ended."""
        __tracebackhide__ = True
        return [token for _, tokens, _ in self.all_pieces() for token in tokens]


class Loopback:
    """A server that listens on 127.0.0.1, and a client of it."""

    def __init__(self, lab: Any, batcher: Any, loop: Any) -> None:
        self.lab = lab
        self.batcher = batcher
        self.core = batcher.core
        self._loop = loop

    def run(self, *, deadline: float | None = None, **fields: Any) -> Rpc:
        """Begin a call of Run. Its result is text, token ids, finish_reason and prompt_tokens of the reply."""
        message = message_of(self.lab, **fields)
        return self._call(self._loop.run(message, deadline or limit(SHORT)), f"a call of Run with {fields}")

    def stream(self, *, deadline: float | None = None, leave: int | None = None, **fields: Any) -> Rpc:
        """Begin a call of Stream. The client cancels it after so many pieces, if it is told when to leave."""
        job = self._loop.stream(message_of(self.lab, **fields), deadline or limit(SHORT), leave)
        return self._call(job, f"a call of Stream with {fields}")

    def tokens(self, **fields: Any) -> list[int]:
        """All tokens of a call of Stream."""
        __tracebackhide__ = True
        return self.stream(**fields).tokens()

    def raw(self, data: bytes) -> Rpc:
        """Begin a call of Run with bytes that may be no message."""
        method = f"/{self.lab.ragged.grpc_server.SERVICE}/Run"
        return self._call(self._loop.raw(method, data, limit(SHORT)), "a call of Run with some bytes")

    def until(self, condition: Callable[[Any], bool], what: str) -> None:
        """Until the batcher's figures meet a condition."""
        self.batcher.until(condition, what)

    def step(self) -> None:
        """Until the engine has begun one more step."""
        self.core.toy_await()

    def check(self, service: str = "") -> str:
        """What the health service says."""
        return str(self._call(self._loop.check(service, limit(SHORT)), "a health check").result())

    def watch(self) -> Rpc:
        """Begin to watch what the health service says: each piece is one answer."""
        return self._call(self._loop.watch(limit(SHORT)), "the watch of the health service")

    def services(self) -> list[str]:
        """The services that the server tells of."""
        return list(self._call(self._loop.services(limit(SHORT)), "reflection").result())

    def stop(self, grace: float) -> Rpc:
        """Begin to stop the server."""
        return self._call(self._loop.stop(grace), f"the server's stop(grace={grace:g})")

    @contextlib.contextmanager
    def killed_client(self, **fields: Any) -> Iterator[Any]:
        """A process that calls Stream with a request of these fields; killed in the end."""
        method = f"/{self.lab.ragged.grpc_server.SERVICE}/Stream"
        message = message_of(self.lab, **fields).SerializeToString()
        process = new_client(self._loop.server.address, method, message)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def _call(self, job: Any, what: str) -> Rpc:
        return Rpc(self._loop, job, what)


def over_grpc(
    lab: Any,
    scenario: Callable[[Loopback], None],
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
    with ThreadErrors(batcher.give_up).collected():
        with served(lab, batcher) as client:
            scenario(client)
        assert not batcher.thread.is_alive(), "the server has stopped, and the batcher's loop goes on"
        check_at_rest(batcher, batcher.futures)
    return batcher


@contextlib.contextmanager
def served(lab: Any, batcher: Any) -> Iterator[Loopback]:
    """A server and a client of it; at the end both are gone, and the first error of the service's is raised."""
    __tracebackhide__ = True
    loop = new_loopback_loop(batcher.give_up)
    pb_grpc = lab.ragged.protocol.tiny_llm_pb2_grpc
    try:
        opening = loop.open(lab.ragged.grpc_server.Server, pb_grpc.TinyLlmStub, batcher, Letters())
        Rpc(loop, opening, "the server's start").result()
        yield Loopback(lab, batcher, loop)
        let_go(batcher.core)
        Rpc(loop, loop.leave(), "the server's stop").result()
    except BaseException:
        let_go(batcher.core)
        for future in list(
            batcher.futures
        ):  # a call that blocks the event loop, or a thread, waits for one of these
            future.cancel()
        loop.leave().wait(limit(SHORT))
        _raise_first(loop)
        raise
    finally:
        loop.close(limit(SHORT))
    _raise_first(loop)


def _raise_first(loop: Any) -> None:
    errors = loop.errors()
    if errors:
        raise errors[0]
