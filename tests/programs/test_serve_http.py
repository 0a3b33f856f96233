"""`pdm run serve --http`: a real server in a process of its own."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from test_serve import COMMAND, LIMIT, needs_signals, read_until, serving

from coursekit.errors import CourseError
from programs.serve_http import HttpOptions, curl, settings_of
from tiny_llm.server.settings import Settings

CHAT = {"model": "smollm2-135m", "messages": [{"role": "user", "content": "What is the capital of France?"}]}


def serving_http(*options: str, port: str = "0") -> AbstractContextManager[subprocess.Popen[str]]:
    return serving("--http", *options, port=port)


def url_of(server: subprocess.Popen[str]) -> str:
    return "http://" + read_until(server.stderr, r"serving on http://(127\.0\.0\.1:\d+): ")


@needs_signals
def test_a_server_answers_with_the_command_that_it_shows_and_finishes_what_runs() -> None:
    with serving_http("--watch", "--pages", "64") as server:
        url = url_of(server)
        command = shlex.split(read_until(server.stderr, r"try it.*: (curl .*)"))
        assert command[:2] == ["curl", f"{url}/v1/chat/completions"]
        body = {**CHAT, "temperature": 0}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=LIMIT).json()
        assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
        read_until(server.stderr, r"(running 0/16.* 1 finished)")
        if shutil.which("curl"):
            done = subprocess.run([*command, "-sS"], capture_output=True, text=True, timeout=LIMIT)
            assert json.loads(done.stdout)["choices"][0]["finish_reason"] == "stop", done.stderr
            read_until(server.stderr, r"(running 0/16.* 2 finished)")
        taken = subprocess.run(
            [*COMMAND, "serve", "--impl", "solution", "--http", "--port", url.rpartition(":")[2]],
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert taken.returncode == 2
        assert f"{os.strerror(errno.EADDRINUSE)}; choose another port with --port" in taken.stderr
        got = list[httpx.Response]()
        long = {**body, "max_tokens": 40, "ignore_eos": True}
        ask = threading.Thread(
            target=lambda: got.append(httpx.post(f"{url}/v1/chat/completions", json=long, timeout=LIMIT))
        )
        ask.start()
        read_until(server.stderr, r"(running 1/16)")
        server.send_signal(signal.SIGTERM)
        read_until(server.stderr, r"(finishing 1 request, 30 s at most)")
        assert httpx.get(f"{url}/ready").status_code == 503
        ask.join(LIMIT)
        assert got[0].json()["usage"]["completion_tokens"] == 40
        read_until(server.stderr, r"(stopped: \d finished, \d+ tokens in \d+ steps)")
        assert server.wait(LIMIT) == 0


@needs_signals
def test_a_second_signal_stops_a_server_over_http_at_once() -> None:
    with serving_http("--watch", "--grace", "90") as server:
        url = url_of(server)
        body = {**CHAT, "stream": True, "ignore_eos": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=LIMIT) as answer:
            assert answer.status_code == 200
            read_until(server.stderr, r"(running 1/16)")
            server.send_signal(signal.SIGTERM)
            read_until(server.stderr, r"(finishing 1 request, 90 s at most)")
            server.send_signal(signal.SIGTERM)
            assert server.wait(LIMIT) == 143


def refused(options: Sequence[str], **environment: str) -> str:
    """What a server says that doesn't start."""
    done = subprocess.run(
        [*COMMAND, "serve", "--impl", "solution", *options],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, **environment},
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_binding_elsewhere_without_a_key_is_refused_before_the_model_is_loaded() -> None:
    said = refused(["--http", "--host", "0.0.0.0", "--model", "no-such-model"])
    assert "on 0.0.0.0 other machines can reach the server" in said
    assert "--allow-open" in said


@pytest.mark.parametrize("options", [["--allow-open"], ["--api-key", "k"]])
def test_an_option_that_only_http_has_is_refused_without_it(options: list[str]) -> None:
    assert "go with --http" in refused(options)


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (HttpOptions(), True),
        (HttpOptions(host="::1"), True),
        (HttpOptions(host="0.0.0.0"), False),
        (HttpOptions(host="0.0.0.0", allow_open=True), True),
        (HttpOptions(host="0.0.0.0", api_key="k"), True),
        (HttpOptions(api_key=" "), False),
    ],
)
def test_the_settings_of_a_server_follow_its_options(options: HttpOptions, allowed: bool) -> None:
    if allowed:
        assert settings_of("smollm2-135m", options).host == options.host
    else:
        with pytest.raises(CourseError):
            settings_of("smollm2-135m", options)


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "http://127.0.0.1:8000/"),
        ({"host": "::1"}, "http://[::1]:8000/"),
        ({"host": "0.0.0.0", "allow_open": True}, "http://127.0.0.1:8000/"),
        ({"api_key": "secret"}, "http://127.0.0.1:8000/"),
    ],
)
def test_the_command_to_try_calls_an_address_that_exists_and_never_shows_the_key(
    settings: dict[str, Any], address: str
) -> None:
    command = curl(Settings(**settings), 8000)
    assert command.startswith(f"curl {address}v1/chat/completions")
    assert "secret" not in command
    assert ("$TINY_LLM_API_KEY" in command) == ("api_key" in settings)
