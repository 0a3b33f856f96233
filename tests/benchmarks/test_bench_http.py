"""`pdm run bench serving --http`: requests that are due, what is measured of their answers, and what may go wrong."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from bench_runs import bench
from toy_server import Script, toy_server

from benchmarks import own_server
from benchmarks.ladder import Quantity
from benchmarks.load import Call, Reply, Service, find_service, send_all
from benchmarks.rounds import Record, Samples, take_turns
from benchmarks.serving import TOKENS
from benchmarks.serving_http import Plan, cases, ladder, make_calls, measured, parse_rates
from coursekit.errors import CourseError
from coursekit.running.import_path import Impl
from programs.loaded import Timing


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def url(script: Script) -> Iterator[str]:
    with toy_server(script) as address:
        yield address


def send(url: str, *calls: Call) -> list[Reply]:
    return asyncio.run(send_all(find_service(url, None), calls))


def test_arrivals_are_as_many_per_second_as_asked_for_and_each_prompt_is_new() -> None:
    calls = list(make_calls(random.Random(1), rate=4, requests=2000, tokens=TOKENS))
    assert calls[0].at == 0
    assert all(earlier.at < later.at for earlier, later in pairwise(calls))
    assert calls[-1].at == pytest.approx(2000 / 4, rel=0.1)
    assert len({call.prompt[:9] for call in calls}) == len(calls), "no two prompts begin alike"
    assert {call.max_tokens for call in calls} == set(range(TOKENS // 4, TOKENS + 1))


def test_the_seed_decides_the_requests_and_each_round_has_others(script: Script, url: str) -> None:
    service = find_service(url, None)
    prompts = []
    for seed in (3, 3, 4):
        script.asked.clear()
        samples = [Samples(case) for case in cases(service, Plan((500.0,), 3, seed, 4))]
        list(take_turns(samples, 2))
        prompts.append(sorted(str(body["prompt"]) for body in script.asked))
    assert prompts[0] == prompts[1]
    assert not set(prompts[0]) & set(prompts[2])
    assert len(set(prompts[0])) == 6


def test_a_call_does_not_wait_for_the_answers_before_it(script: Script, url: str) -> None:
    replies = send(url, *[Call("a", 50, 0.0) for _ in range(150)])
    assert [reply.error for reply in replies] == [None] * 150
    assert script.most_streams > 100, "more than an HTTP client opens by itself"


def test_a_reply_has_a_stamp_per_piece_and_the_tokens_that_the_server_counted(
    script: Script, url: str
) -> None:
    (reply,) = send(url, Call("hello there", 5, 0.02))
    assert (len(reply.timing.arrivals), reply.tokens, reply.error) == (5, 10, None)
    assert reply.timing.first_token > 0
    body = script.asked[0]
    assert (body["prompt"], body["max_tokens"], body["stream"]) == ("hello there", 5, True)
    assert (body["model"], body["temperature"], body["stream_options"]) == ("toy", 0, {"include_usage": True})


def test_without_a_count_from_the_server_the_pieces_are_the_tokens(script: Script, url: str) -> None:
    script.usage = False
    assert [reply.tokens for reply in send(url, Call("a", 5, 0.0))] == [5]


def test_what_is_refused_breaks_off_or_fails_is_counted_as_failed(script: Script, url: str) -> None:
    script.refuses = 1
    replies = send(url, Call("a", 4, 0.0), Call("b", 4, 0.05))
    assert [reply.error for reply in replies] == [
        'status 429: {"error":{"message":"the queue is full"}}',
        None,
    ]
    assert measured(replies)["failed"] == 1
    script.breaks_off = True
    assert send(url, Call("a", 4, 0.0))[0].error == "the answer broke off"
    script.breaks_off, script.fails = False, True
    assert "the engine has failed" in (send(url, Call("a", 4, 0.0))[0].error or "")


def test_the_figures_are_percentiles_over_all_answers_and_all_gaps() -> None:
    values = measured(
        [
            Reply(Timing(10.0, [11.0, 11.5, 13.5]), 5),
            Reply(Timing(12.0, [14.0, 14.25]), 4),
            Reply(Timing(9.0, [9.5]), 100, error="status 429"),
        ]
    )
    assert values["tokens_per_second"] == pytest.approx(9 / (14.25 - 9.0))
    assert (values["first_50"], values["first_95"], values["first_99"]) == (1.0, 2.0, 2.0)
    assert (values["gap_50"], values["gap_95"], values["gap_99"]) == (0.5, 2.0, 2.0)
    assert values["failed"] == 1


def test_if_all_have_failed_there_is_no_figure_but_the_first_reason() -> None:
    with pytest.raises(CourseError, match="no request was answered: status 500"):
        measured([Reply(error="status 500"), Reply(error="status 429")])
    with pytest.raises(CourseError, match="no request was answered: the answers have no text"):
        measured([Reply()])


def test_what_is_shown_is_measured(url: str) -> None:
    record = Record([Samples(case) for case in cases(find_service(url, None), Plan((200.0, 400.0), 3, 0, 4))])
    announced = list(take_turns(record.samples, 2))
    assert announced[1:3] == [
        "round 1 of 2: 400 requests per second",
        "round 2 of 2: 400 requests per second",
    ]
    shown: tuple[Quantity, ...] = ladder(3).quantities
    assert {quantity.name for quantity in shown} <= set(record.measured[0].runs[1])


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_an_address_may_have_the_path_of_the_api_or_not(url: str, ending: str) -> None:
    assert find_service(url + ending, None) == Service(f"{url}/v1", None, "toy")


def test_a_server_may_want_a_key(script: Script, url: str) -> None:
    script.key = "secret"
    with pytest.raises(CourseError, match="wants a key: give it with --api-key, or in OPENAI_API_KEY"):
        find_service(url, None)
    with pytest.raises(CourseError, match="does not take this key"):
        find_service(url, "other")
    service = find_service(url, "secret")
    assert asyncio.run(send_all(service, [Call("a", 2, 0.0)]))[0].error is None


def test_a_server_that_is_not_there_or_no_such_server_is_an_error_of_one_line(url: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(CourseError, match=rf"^no server answers at {nowhere} .*: is it running\?$"):
            find_service(nowhere, None)
    with pytest.raises(CourseError, match=r"no OpenAI-compatible one: GET .*/docs/v1/models gave status 404"):
        find_service(f"{url}/docs", None)
    for wrong in ("localhost:8000", "", "http://127.0.0.1:port"):
        with pytest.raises(CourseError, match="it must look like http"):
            find_service(wrong, None)


def test_rates_are_numbers_above_0_each_once() -> None:
    assert parse_rates("0.5, 2,16") == (0.5, 2.0, 16.0)
    for wrong in ("", "1,,2", "fast", "0", "-1", "nan", "inf"):
        with pytest.raises(CourseError, match="must be numbers above 0"):
            parse_rates(wrong)
    with pytest.raises(CourseError, match="must be there once"):
        parse_rates("2,2.0")


def test_bench_prints_a_row_per_rate_and_keeps_it(script: Script, url: str, tmp_path: Path) -> None:
    out = tmp_path / "mine.json"
    options = ["--rates", "100,200", "--requests", "4", "--repeats", "2", "--seed", "7", "--out", str(out)]
    done = bench("serving", "--url", url, *options, COLUMNS="140")
    assert done.returncode == 0, done.stderr
    for rate in (100, 200):
        assert re.search(rf"^{rate} requests per second +[\d.,]+ ", done.stdout, re.MULTILINE)
    kept = json.loads(out.read_text(encoding="utf-8"))
    about = {name: kept[name] for name in ("bench", "model", "url", "seed", "repeats", "finished")}
    assert about == {
        "bench": "serving-http",
        "model": "toy",
        "url": url,
        "seed": 7,
        "repeats": 2,
        "finished": True,
    }
    assert [row["name"] for row in kept["ladders"][0]["rows"]] == ["rate-100", "rate-200"]
    assert out.with_suffix(".svg").exists()
    assert len(script.asked) == 3 + 2 * 2 * 4, "a few to warm up, then all rates in both rounds"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals to send to another process")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_it_with_the_rates_that_are_measured(
    url: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "mine.json"
    options = ["--url", url, "--rates", "100,0.001", "--requests", "3", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "bench", "serving", "--impl", "solution", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "140"},
    )
    assert process.stderr is not None
    said = next(line for line in process.stderr if "0.001 requests" in line)
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == code, said + errors
    assert re.search(r"^100 requests per second +[\d.]+", output, re.MULTILINE)
    kept = json.loads(out.read_text(encoding="utf-8"))
    assert not kept["finished"]
    assert [row["name"] for row in kept["ladders"][0]["rows"]] == ["rate-100"]
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["host", "--http"], "--http and --url are for serving, alone: pdm run bench serving --http"),
        (["--url", "http://127.0.0.1:1"], "--http and --url are for serving, alone"),
        (["serving", "--rates", "1"], "--rates is for serving over HTTP: pdm run bench serving --http"),
        (["serving", "--seed", "0"], "--seed is for serving over HTTP"),
        (["serving", "--http", "--rates", "0"], "--rates is '0'; it must be numbers above 0"),
        (["serving", "--http", "--out", "mine.svg"], "--out is 'mine.svg'"),
        (["serving", "--url", "http://127.0.0.1:1"], "no server answers at http://127.0.0.1:1"),
    ],
)
def test_what_does_not_fit_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = bench(*arguments, "--impl", "solution")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1


def test_a_server_that_ends_before_it_is_ready_is_reported_with_what_it_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dies = [sys.executable, "-c", "import sys; print('no room', file=sys.stderr); sys.exit(3)"]
    monkeypatch.setattr(own_server, "server_command", lambda impl, port: dies)
    with (
        pytest.raises(CourseError, match=r"ended before it was ready:\nno room$"),
        own_server.own_server(Impl.SOLUTION),
    ):
        pass


READY = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()
        self.wfile.write(str("TINY_LLM_API_KEY" in os.environ).encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_the_server_of_its_own_is_there_once_it_is_ready_wants_no_key_and_is_gone_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        own_server, "server_command", lambda impl, port: [sys.executable, "-c", READY, str(port)]
    )
    monkeypatch.setenv("TINY_LLM_API_KEY", "of another server")
    with own_server.own_server(Impl.SOLUTION) as url:
        assert httpx.get(f"{url}/ready", trust_env=False).text == "False"
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/ready", trust_env=False)


def test_the_server_of_its_own_is_the_one_of_pdm_run_serve() -> None:
    command = own_server.server_command(Impl.SOLUTION, 1234)
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
    assert command[1:] == ["-m", "programs", "serve", "--http", "--impl", "solution", "--port", "1234"]
