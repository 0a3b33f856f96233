"""The given code around Day 3.7's service: the door, the server, and the futures that callers hold."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from week_2.reading_model import V, alone
from week_3.client_process import killed_client, next_line
from week_3.patience import limit
from week_3.serving import (
    END,
    ENGINES,
    Letters,
    batcher_of,
    new_request,
    outcome,
    ragged_engine,
    seat,
    watched,
)
from week_3.serving_grpc import SHORT, Code, Loopback, message_of, over_grpc
from week_3.serving_threads import within

from coursekit.check import check_equal, check_raises


@pytest.fixture(autouse=True)
def _imported(lab: Any) -> None:
    """Modules that take long to import aren't imported inside a time limit."""
    assert lab.ragged.grpc_server


def test_a_message_that_is_too_long_is_never_read(lab, monkeypatch):
    read = list[str]()

    def encode(self: Letters, text: str, control_tokens: bool = True) -> list[int]:
        read.append(text)
        return [1]

    monkeypatch.setattr(Letters, "encode", encode)

    def texts(field: str, length: int) -> dict[str, Any]:
        return {field: "é" * length}

    async def scenario(client: Loopback) -> None:
        most = 63 * Letters.longest_token
        for field in ("prompt", "text"):
            code, details = await client.status(client.run(**texts(field, most + 1)))
            check_equal(code, Code.INVALID_ARGUMENT, name=f"the status of a {field} of {most + 1} characters")
            assert f"{most + 1} characters; at most {most} fit" in details
            assert not read
            check_equal((await client.status(client.run(**texts(field, most))))[0], Code.OK)
            assert len(read.pop()) == most
        code, details = await client.status(client.run(ids=[1] * 64))
        check_equal((code, "64 tokens; at most 63" in details), (Code.INVALID_ARGUMENT, True))
        check_equal((await client.status(client.run(ids=[1] * 63)))[0], Code.OK)

    over_grpc(lab, scenario)


def test_bytes_that_are_no_message_are_the_clients_mistake(lab):
    async def scenario(client: Loopback) -> None:
        for name in ("Run", "Stream"):
            method = f"/{lab.ragged.grpc_server.SERVICE}/{name}"
            for data in (b"\x0a\x02\xc3\x28", b"\xff" * 20):
                if name == "Run":
                    call = client.channel.unary_unary(method)(data, timeout=limit(SHORT))
                else:
                    call = anext(aiter(client.channel.unary_stream(method)(data, timeout=limit(SHORT))))
                check_equal((await client.status(call))[0], Code.INVALID_ARGUMENT, name=f"{name} of {data!r}")

    over_grpc(lab, scenario)


def test_a_negative_number_is_read_as_negative(lab):
    """In an unsigned field, −1 is 4,294,967,295."""

    async def scenario(client: Loopback) -> None:
        for field in ("max_tokens", "top_k"):
            code, details = await client.status(client.run(text="a", **{field: -1}))
            check_equal((code, f"{field} is -1;" in details), (Code.INVALID_ARGUMENT, True), name=details)
        reply = await client.run(text="a", max_tokens=2**40)
        assert len(reply.token_ids) <= 63

    over_grpc(lab, scenario)


@pytest.mark.parametrize("engine", ["PagedBatch", "RaggedBatch"])
@pytest.mark.parametrize("token", [V, -1, 10**9, 2.0, None], ids=repr)
def test_a_prompt_with_a_token_that_the_model_does_not_have_never_reaches_it(lab, engine, token):
    batcher = batcher_of(lab, core=ENGINES[engine](lab))
    for prompt in ([token], [1, token, 2]):
        name = f"a prompt {prompt}, where ids go from 0 to {V - 1}"
        error = check_raises(ValueError, partial(batcher.submit, new_request(lab, prompt, 3)), name=name)
        assert repr(token) in str(error), f"{name}: {error}"
    batcher.submit(new_request(lab, [0, V - 1], 3))
    assert len(batcher.request_queue) == 1


def test_a_sampler_that_chooses_what_the_model_does_not_have_harms_no_other_request(lab):
    """With the real engine: its next step would end all requests."""
    batcher = batcher_of(lab, watched(lab), ragged_engine(lab))
    requests = [new_request(lab, [n, 3], 6) for n in range(3)]
    requests[1].sample = lambda logits, ids: V + 5
    futures = [batcher.submit(request) for request in requests]
    while batcher.request_queue or batcher.tickets:
        batcher.admit()
        batcher.retire(batcher.step())
    ends = [alone([0, 3], 6), "ValueError", alone([2, 3], 6)]
    check_equal([outcome(future) for future in futures], ends)


@pytest.mark.parametrize("error", [StopIteration(), asyncio.CancelledError(), KeyError("x")], ids=repr)
def test_whatever_a_tokenizer_raises_the_call_ends(lab, monkeypatch, error):
    def encode(self: Letters, text: str, control_tokens: bool = True) -> list[int]:
        raise error

    monkeypatch.setattr(Letters, "encode", encode)

    async def scenario(client: Loopback) -> None:
        for call in (client.run(text="a"), anext(aiter(client.stream(text="a")))):
            code, _ = await client.status(call)
            check_equal(code, Code.INTERNAL, name=f"the status of a call whose tokenizer raises {error!r}")

    over_grpc(lab, scenario)


@pytest.mark.parametrize("error", [StopIteration("x"), asyncio.CancelledError("x")], ids=repr)
def test_whatever_a_sampler_raises_the_future_is_settled_with_an_error(lab, error):
    def sample(logits: Any, ids: Any) -> int:
        raise error

    batcher = batcher_of(lab)
    seat(batcher, new_request(lab, [1], 3, sample=sample))
    future = next(iter(batcher.tickets.values())).future
    batcher.retire(batcher.step())
    check_equal(str(future.exception()), f"{type(error).__name__}: x")
    assert type(future.exception()) is RuntimeError


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), KeyError("x")], ids=repr)
def test_a_callback_that_fails_leaves_the_other_futures_alone(lab, caplog, error):
    def fail(future: Any) -> None:
        raise error

    batcher = batcher_of(lab)
    tickets = seat(batcher, *(new_request(lab, [n], 3) for n in range(3)))
    tickets[0].future.add_done_callback(fail)
    batcher.release(tickets)
    assert all(ticket.future.done() for ticket in tickets)
    assert any("exception calling callback" in record.message for record in caplog.records)


def test_a_batcher_that_was_stopped_can_not_be_started(lab):
    """Otherwise its loop would run beside the `abandon` of `stop`."""
    batcher = batcher_of(lab)
    batcher.stop()
    check_raises(lab.ragged.batcher.Closed, batcher.start, name="`start` after `stop`")
    assert not batcher.thread.is_alive()


def test_figures_are_read_under_the_lock(lab):
    batcher = batcher_of(lab)
    with batcher.changed, pytest.raises(AssertionError, match="has not ended"):
        within(batcher.stats, "stats", 0.1)


def test_room_is_asked_for_as_submit_would(lab):
    batcher = batcher_of(lab, max_queue=1)
    batcher.require_room()
    batcher.submit(new_request(lab, [1], 3))
    check_raises(lab.ragged.errors.QueueFull, batcher.require_room, match="1 requests are waiting")
    check_equal(batcher.stats().refused, 1, name="refused, in the figures")
    batcher.stop()
    check_raises(lab.ragged.errors.Closed, batcher.require_room)
    check_equal(batcher.stats().refused, 1, name="refused, in the figures")


def test_health_says_so_when_the_loop_has_died(lab):
    async def scenario(client: Loopback) -> None:
        watch = client.health.Watch(health_pb2.HealthCheckRequest(), timeout=limit(SHORT))
        check_equal((await watch.read()).status, health_pb2.HealthCheckResponse.SERVING)
        client.core.toy_fail("push", 1, KeyError("as the test wants it"))
        check_equal((await client.status(client.run(text="a")))[0], Code.UNAVAILABLE)
        check_equal((await watch.read()).status, health_pb2.HealthCheckResponse.NOT_SERVING)
        watch.cancel()

    with pytest.raises(KeyError, match="as the test wants it"):
        over_grpc(lab, scenario)


def test_more_calls_than_can_run_and_wait_are_refused(lab, monkeypatch):
    monkeypatch.setattr(lab.ragged.grpc_server, "SPARE_CALLS", 1)

    async def scenario(client: Loopback) -> None:
        client.core.toy_close()
        calls = [asyncio.create_task(client.tokens(ids=[1, 1], max_tokens=4))]
        await client.step()
        calls.append(asyncio.create_task(client.tokens(ids=[1, 1], max_tokens=4)))
        await client.until(lambda stats: stats.waiting == 1, "one request waits")
        watch = client.health.Watch(health_pb2.HealthCheckRequest(), timeout=limit(SHORT))
        await watch.read()  # one seat, one place in the queue, one spare call
        code, details = await client.status(client.run(text="a"))
        check_equal((code, "oncurrent" in details), (Code.RESOURCE_EXHAUSTED, True), name=details)
        watch.cancel()
        client.core.toy_open()
        for call in calls:
            check_equal(await call, alone([1, 1], 4, (END,)))

    over_grpc(lab, scenario, seats=1, max_queue=1)


def test_a_port_that_is_taken_is_one_error_without_lines_of_grpc(lab, capfd):
    async def main() -> None:
        server = lab.ragged.grpc_server.Server(batcher_of(lab), Letters(), port=taken.getsockname()[1])
        await server.start()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = check_raises(OSError, lambda: asyncio.run(main()), name="`start` on a port that is taken")
        assert str(error).startswith(f"can't listen on 127.0.0.1:{taken.getsockname()[1]}")
    assert capfd.readouterr().err == ""


def test_connections_beyond_the_bound_are_closed_at_once_and_later_ones_are_served(lab, monkeypatch):
    monkeypatch.setattr(lab.ragged.grpc_server, "most_connections", lambda: 3)

    @contextlib.contextmanager
    def crowd(port: int) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for _ in range(6):
                stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            yield

    async def ask(address: str) -> Any:
        async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = lab.ragged.protocol.tiny_llm_pb2_grpc.TinyLlmStub(channel)
            return await stub.Run(message_of(lab, text="a", max_tokens=2), timeout=limit())

    async def scenario(client: Loopback) -> None:
        with crowd(client.server.port):
            while True:  # the server takes connections one after the other
                code, _ = await client.status(ask(client.server.address))
                if code is not Code.OK:
                    break
            check_equal(code, Code.UNAVAILABLE, name="the status of a call for which there is no connection")
        while (await client.status(ask(client.server.address)))[0] is not Code.OK:
            await asyncio.sleep(0.01)

    over_grpc(lab, scenario)


def test_a_server_may_not_use_up_its_files(lab):
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 1 <= lab.ragged.open_files.most_connections() <= soft // 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows can't stop a process for a while")
def test_a_client_that_is_silent_for_too_long_frees_its_seat(lab, monkeypatch):
    """As a machine does that has vanished: its connection is open, and nothing answers."""
    monkeypatch.setattr(lab.ragged.grpc_server, "KEEPALIVE", 200)

    async def scenario(client: Loopback) -> None:
        client.core.toy_close()
        async with killed_client(client, text="abc", max_tokens=50) as process:
            await client.step()
            client.core.toy_let(1)
            await next_line(process)
            process.send_signal(signal.SIGSTOP)
            gone = asyncio.wrap_future(client.batcher.futures[0])
            await asyncio.wait([gone], timeout=limit(SHORT))
            assert gone.cancelled(), (
                "a client has not answered for longer than it may, and its request goes on"
            )
            client.core.toy_open()

    over_grpc(lab, scenario)
