"""Clients that go away, answers that fail midway, and servers that stop."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai
import pytest
from http_site import HELLO, NAME, Site, events_of
from week_3.patience import limit

from tiny_llm.server.run import HttpServer

# Greedy: a token that is drawn may be one without text, for which nothing is sent.
ALIKE = {"model": NAME, "max_tokens": 100, "ignore_eos": True, "temperature": 0}
COMPLETION = {**ALIKE, "prompt": "a"}
CHAT = {**ALIKE, "messages": HELLO}
PATHS: dict[str, dict[str, Any]] = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT}


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as started:
        yield started


@contextmanager
def raw_request(site: Site, path: str, body: dict[str, Any]) -> Iterator[socket.socket]:
    """A connection on which a request was sent; the test closes it when it likes."""
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", int(site.url.rpartition(":")[2])), limit()) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        yield connection


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_pages_of_a_client_that_goes_away_are_free_after_the_step_that_runs(
    site: Site, path: str, stream: bool
) -> None:
    site.hold()
    with raw_request(site, path, {**PATHS[path], "stream": stream, "n": 3}):
        site.until_there(3)
        site.let(2)
        core = site.llm.core
        site.until(lambda: site.model.begun == 3, "the third step has begun")
    futures = list(site.llm.batcher.tickets.values())
    site.until(lambda: all(each.future.cancelled() for each in futures), "the answers are cancelled")
    assert core.requests, "no step has ended since: the requests are still in the engine"
    site.let(1)  # the step that runs
    site.until(lambda: not core.requests, "the requests have left after one step")
    site.model.open.set()
    site.until_at_rest()
    site.until_counted("cancelled", 3)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_while_it_waits_is_never_run(site: Site, stream: bool) -> None:
    site.llm.core.max_requests = 1
    site.hold()
    with raw_request(site, "/v1/completions", {**COMPLETION, "max_tokens": 3}) as first:
        site.until_running()
        with raw_request(site, "/v1/completions", {**COMPLETION, "prompt": "b", "stream": stream}):
            site.until(lambda: site.llm.batcher.stats().waiting == 1, "one request waits")
        site.until(
            lambda: all(each.future.cancelled() for each in list(site.llm.batcher.request_queue)),
            "the one that waits is cancelled",
        )
        site.model.open.set()
        assert first.recv(1000).startswith(b"HTTP/1.1 200 ")
    site.until_at_rest()
    assert site.llm.batcher.stats().tokens == 3


def test_a_client_that_reads_half_a_stream_and_leaves_is_forgotten(site: Site) -> None:
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key="any", timeout=limit()) as client:
        site.hold()
        site.let(5)
        extra = {"ignore_eos": True}
        stream = client.completions.create(
            model=NAME, prompt="abc", stream=True, temperature=0, max_tokens=150, extra_body=extra
        )
        assert next(iter(stream)).choices
        stream.close()
    futures = [each.future for each in list(site.llm.batcher.tickets.values())]
    site.until(lambda: all(each.cancelled() for each in futures), "the answer is cancelled")
    site.model.open.set()
    site.until_at_rest()
    site.until_counted("cancelled", 1)


def test_an_async_client_that_is_cancelled_frees_its_pages(site: Site) -> None:
    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="any", timeout=limit()) as client:
            task = asyncio.create_task(
                client.completions.create(model=NAME, prompt="abc", temperature=0, max_tokens=150)
            )
            await asyncio.to_thread(site.until_running)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    site.hold()
    asyncio.run(main())
    futures = [each.future for each in list(site.llm.batcher.tickets.values())]
    site.until(lambda: all(each.cancelled() for each in futures), "the answer is cancelled")
    site.model.open.set()
    site.until_at_rest()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_the_pages_of_a_client_that_is_killed_are_free(site: Site) -> None:
    program = (
        "import sys, urllib.request as r\n"
        "q = r.Request(sys.argv[1], sys.stdin.buffer.read(), {'Content-Type': 'application/json'})\n"
        "print(r.urlopen(q).readline())\n"
        "sys.stdout.flush()\n"
        "r.time.sleep(1000)\n"
    )
    site.hold()
    site.let(2)
    body = json.dumps({**COMPLETION, "stream": True}).encode()
    process = subprocess.Popen(
        [sys.executable, "-c", program, f"{site.url}/v1/completions"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "no_proxy": "*"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(body)
    process.stdin.close()
    assert process.stdout.readline().startswith(b"b'data: ")
    process.send_signal(signal.SIGKILL)
    process.wait(limit())
    process.stdout.close()
    futures = [each.future for each in list(site.llm.batcher.tickets.values())]
    site.until(lambda: all(each.cancelled() for each in futures), "the answer is cancelled")
    site.model.open.set()
    site.until_at_rest()


def test_a_step_that_fails_in_the_middle_of_a_stream_is_an_event_and_no_done(site: Site) -> None:
    site.hold()
    with site.client() as client:
        body = json.dumps({**COMPLETION, "stream": True})
        headers = {"Content-Type": "application/json"}
        with client.stream("POST", "/v1/completions", content=body, headers=headers) as answer:
            site.let(2)
            site.until(lambda: site.llm.batcher.metrics.steps == 2, "two steps")
            site.model.failure = KeyError("as the test wants it")
            site.model.open.set()
            events = events_of(answer.read().decode())
    assert answer.status_code == 200
    assert "error" not in events[0]
    assert set(events[-1]["error"]) == {"message", "type", "param", "code"}
    assert "[DONE]" not in events
    site.until_at_rest()


def test_the_openai_client_raises_an_error_that_comes_in_the_middle_of_a_stream(site: Site) -> None:
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key="any", timeout=limit()) as client:
        site.hold()
        site.let(2)
        stream = iter(client.chat.completions.create(model=NAME, messages=HELLO, temperature=0, stream=True))
        next(stream)
        site.until(lambda: site.llm.batcher.metrics.steps == 2, "two steps")
        site.model.failure = KeyError("as the test wants it")
        site.model.open.set()
        with pytest.raises(openai.APIError, match="EngineFailed"):
            list(stream)


def test_a_server_that_stops_finishes_what_runs_and_refuses_what_comes(site: Site) -> None:
    site.hold()
    with raw_request(site, "/v1/completions", {**COMPLETION, "max_tokens": 5}) as running:
        site.until_running()
        assert httpx.get(f"{site.url}/ready").status_code == 200
        finished = site.stop(grace=limit())
        site.until(lambda: site.llm.batcher.closed, "the engine takes no more")
        ready = httpx.get(f"{site.url}/ready")
        assert (ready.status_code, ready.json()) == (503, {"status": "closing"})
        assert httpx.get(f"{site.url}/health").status_code == 200
        assert "tiny_llm_requests_running 1.0" in httpx.get(f"{site.url}/metrics").text
        refused = site.post("/v1/completions", COMPLETION)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        site.model.open.set()
        answer = b""
        while piece := running.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["usage"]["completion_tokens"] == 5
    assert finished.result(limit()) is True


def test_when_the_grace_is_over_clients_are_told_so(site: Site) -> None:
    """The step that runs goes on until the grace is over."""
    site.hold()
    with (
        raw_request(site, "/v1/completions", COMPLETION) as whole,
        raw_request(site, "/v1/completions", {**COMPLETION, "stream": True}) as stream,
    ):
        site.until_there(2)
        finished = site.stop(grace=0.05)
        site.until(lambda: site.llm.batcher.abandoned, "the grace is over")
        site.model.open.set()
        answers = []
        for connection in (whole, stream):
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
            answers.append(answer)
    assert answers[0].startswith(b"HTTP/1.1 503 ")
    assert b'"error"' in answers[1]
    assert b"[DONE]" not in answers[1]
    assert finished.result(limit()) is False


def test_when_the_engines_loop_has_died_the_health_says_so(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die() -> None:
        raise KeyError("as the test wants it")

    monkeypatch.setattr(site.llm.batcher, "admit", die)
    monkeypatch.setattr("threading.excepthook", lambda details: None)
    assert httpx.get(f"{site.url}/health").status_code == 200
    assert site.post("/v1/completions", COMPLETION).status_code == 503
    site.llm.batcher.thread.join(limit())
    for path in ("/health", "/ready"):
        assert httpx.get(f"{site.url}{path}").status_code == 503, path
    monkeypatch.undo()


def test_small_pieces_are_sent_at_once(site: Site) -> None:
    """asyncio turns the delay of small pieces off for sockets that say that they are TCP."""
    listener = site.server.server.servers[0].sockets[0]
    assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid"])
def test_an_address_that_can_not_be_listened_on_is_one_error(site: Site, host: str) -> None:
    server = HttpServer(site.app, site.llm, host, int(site.url.rpartition(":")[2]))
    with pytest.raises(OSError, match=f"^can't listen on {host}:[0-9]+: "):
        asyncio.run(server.start())
