"""`pdm run serve` and `pdm run ask`: a real server in a process of its own, and what it shows."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import IO, Any

import pytest
from rich.console import Console

from programs.cores import most_pages
from programs.serve_view import ServeView, line, table

COMMAND = [sys.executable, "-m", "programs"]
LIMIT = 100  # seconds; nothing here takes as long
needs_signals = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no SIGINT to send to another process"
)


def ask(port: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "ask", *arguments, "--port", port],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=LIMIT,
    )


@contextmanager
def serving(*options: str, port: str = "0") -> Iterator[subprocess.Popen[str]]:
    """The reference's server in a process, which is ended if a test hasn't done so."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--impl", "solution", "--port", port, *options],
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(LIMIT)


def read_until(stream: IO[str] | None, pattern: str) -> str:
    """The first match in a process's lines."""
    assert stream is not None
    seen = []
    for text in stream:
        seen.append(text)
        if found := re.search(pattern, text):
            return found[1]
    pytest.fail(f"the process ended without {pattern!r}, after:\n{''.join(seen)}")


@needs_signals
def test_a_server_answers_refuses_and_finishes_what_runs_when_it_is_told_to_stop() -> None:
    with serving("--watch", "--pages", "64") as server:
        port = read_until(server.stderr, r"serving on 127\.0\.0\.1:(\d+)")
        assert (
            read_until(server.stderr, r"try it.*: (.*)") == f'pdm run ask "Name three fruits." --port {port}'
        )
        answered = ask(port, "What is the capital of France?")
        assert (answered.returncode, answered.stdout) == (0, "The capital of France is Paris.\n"), (
            answered.stderr
        )
        assert re.search(
            r"^8 tokens · first after [\d.]+ s · [\d.]+ tokens/s$", answered.stderr, re.MULTILINE
        )
        read_until(server.stderr, r"(running 0/16.* 1 finished)")
        refused = ask(port, "x", "--max-tokens", "2000")
        assert refused.returncode == 2
        assert re.fullmatch(
            r"error: INVALID_ARGUMENT: prompt and output need up to \d+ pages of 16 tokens; there are 64\n",
            refused.stderr,
        )
        taken = subprocess.run(
            [*COMMAND, "serve", "--impl", "solution", "--port", port],
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=LIMIT,
        )
        assert taken.returncode == 2
        said = [each for each in taken.stderr.splitlines() if not each.startswith("starting")]
        assert said == [
            f"error: can't listen on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}; "
            "choose another port with --port, or 0 for any that is free",
        ]
        long = subprocess.Popen(
            [*COMMAND, "ask", "Tell me a story.", "--max-tokens", "40", "--port", port],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        read_until(server.stderr, r"(running 1/16)")
        server.send_signal(signal.SIGINT)
        _, errors = long.communicate(timeout=LIMIT)
        assert long.returncode == 0, errors
        assert re.search(r"^\d+ tokens · ", errors, re.MULTILINE)
        read_until(server.stderr, r"(stopped: 2 finished, \d+ tokens in \d+ steps)")
        assert server.wait(LIMIT) == 0


def long_answer(port: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "ask", "Tell me a long story.", "--max-tokens", "4000", "--port", port],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


@needs_signals
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [("SIGINT", "SIGINT", 130), ("SIGTERM", "SIGTERM", 143), ("SIGTERM", "SIGINT", 130)],
)
def test_a_second_signal_stops_at_once(first: str, second: str, code: int) -> None:
    with serving("--watch", "--grace", "90") as server:
        port = read_until(server.stderr, r"serving on 127\.0\.0\.1:(\d+)")
        client = long_answer(port)
        read_until(server.stderr, r"(running 1/16)")
        server.send_signal(signal.Signals[first])
        read_until(server.stderr, r"(finishing 1 request, 90 s at most)")
        server.send_signal(signal.Signals[second])
        assert server.stderr is not None
        assert server.stderr.read().splitlines()[-1] == "stopped at once: 1 not finished, 0 finished"
        assert server.wait(LIMIT) == code
        client.communicate(timeout=LIMIT)
        assert client.returncode == 2


@needs_signals
def test_when_the_grace_is_over_the_server_ends_in_peace() -> None:
    with serving("--watch", "--grace", "0.2") as server:
        port = read_until(server.stderr, r"serving on 127\.0\.0\.1:(\d+)")
        client = long_answer(port)
        read_until(server.stderr, r"(running 1/16)")
        server.send_signal(signal.SIGTERM)
        read_until(server.stderr, r"(finishing 1 request, 0.2 s at most)")
        assert server.stderr is not None
        assert re.fullmatch(
            r"stopped: 0 finished, 1 cancelled, \d+ tokens in \d+ steps\n", server.stderr.read()
        )
        assert server.wait(LIMIT) == 0
        _, errors = client.communicate(timeout=LIMIT)
        assert (client.returncode, "UNAVAILABLE" in errors) == (2, True), errors


def test_without_a_server_the_client_says_how_to_start_one() -> None:
    done = ask("1", "x")
    assert done.returncode == 2
    assert done.stderr == "error: no server answers on 127.0.0.1:1; start one with: pdm run serve\n"


def test_a_host_that_no_one_knows_is_named() -> None:
    done = ask("1", "x", "--host", "no.such.host.invalid")
    assert done.returncode == 2
    assert done.stderr == "error: there is no machine of the name in no.such.host.invalid:1: check --host\n"


def test_more_pages_than_the_machine_has_memory_for_are_refused_with_how_many_there_is_room_for() -> None:
    with serving("--pages", "99999999999") as server:
        _, errors = server.communicate(timeout=LIMIT)
    assert server.returncode == 2
    assert re.fullmatch(
        r"error: 99,999,999,999 pages of 16 tokens would take 73,728,000 GB; there are \d+ GB in all, "
        r"room for [\d,]+ pages: give a smaller --pages",
        errors.splitlines()[-1],
    )


def test_a_seat_may_hold_no_more_pages_than_the_models_positions_fill() -> None:
    model: Any = SimpleNamespace(config=SimpleNamespace(max_positions=33))
    assert most_pages(model) == 3


@needs_signals
def test_ctrl_c_of_the_client_ends_the_line_and_says_how_fast_it_was() -> None:
    with serving() as server:
        port = read_until(server.stderr, r"serving on 127\.0\.0\.1:(\d+)")
        client = subprocess.Popen(
            [*COMMAND, "ask", "Once upon a time", "--raw", "--max-tokens", "2000", "--port", port],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        assert client.stdout is not None
        assert client.stdout.read(16) == "Once upon a time"
        client.send_signal(signal.SIGINT)
        output, errors = client.communicate(timeout=LIMIT)
        assert client.returncode == 130
        assert output.endswith("\n")
        assert re.search(
            r"^\d+ tokens · first after [\d.]+ s · [\d.]+ tokens/s · broken off$", errors, re.MULTILINE
        )
        assert "Traceback" not in errors


def test_a_negative_top_k_is_refused_before_it_is_sent() -> None:
    done = ask("1", "x", "--top-k", "-1")
    assert done.returncode == 2
    assert re.match(r"error: .*'--top-k'.* 0 ", done.stderr), done.stderr


@pytest.fixture
def stats() -> Any:
    from tiny_llm.ragged.metrics import Stats

    return Stats(
        waiting=3,
        running=2,
        seats=4,
        free_pages=30,
        pages=40,
        finished=7,
        cancelled=1,
        failed=0,
        refused=2,
        tokens=1234,
        steps=50,
        occupancy=0.25,
        first_token=0.5,
        first_token_95=1.25,
        per_token=None,
    )


def test_the_table_shows_every_number_and_a_dash_where_there_is_none_yet(stats: Any) -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table(stats))
    rows = [re.sub(r"[━╸╺ ]+", " ", text).strip() for text in capture.get().splitlines()]
    assert rows == [
        "waiting 3 requests in the queue",
        "running 2 of 4 seats",
        "pages in use 10 of 40",
        "a step's tokens 25% of the token budget",
        "first token after 0.50 s 95 % by 1.25 s",
        "then one every – 1,234 tokens so far",
        "requests 7 finished, 1 cancelled, 2 turned away",
    ]


def test_in_a_pipe_a_line_comes_only_when_requests_have_come_or_gone(stats: Any) -> None:
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        view = ServeView(console, watch=True)
        for now in (stats, replace(stats, tokens=1300, free_pages=29), replace(stats, waiting=2, running=3)):
            view.show(now)
    assert capture.get().splitlines() == [line(stats), line(replace(stats, waiting=2, running=3))]
    with console.capture() as capture:
        ServeView(console, watch=False).show(stats)
    assert capture.get() == ""
