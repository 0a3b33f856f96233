"""`pdm run window` as its user meets it: in a process of its own, on the real model."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from copies import make_copy

from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import ROOT_VARIABLE, Course
from programs.loaded import LoadedModel
from programs.prompts import PROMPTS
from window.stages import STAGES, WatchedStage, find_stages, try_out

COMMAND = [sys.executable, "-m", "window", "window"]
OPEN = [*COMMAND, "--no-open"]
SERVE = [sys.executable, "-m", "programs", "serve", "--http"]
LIMIT = 100.0
ADDRESS = re.compile(r"^(.*)(?::| on) (http://127\.0\.0\.1:\d+)[/:]", re.MULTILINE)
needs_signals = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no SIGINT to send to another process"
)


class Watched:
    """A window that is open."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self.process, self.said = process, ""
        found = None
        while found is None:
            line = process.stderr.readline()
            assert line, f"the process has ended: {self.said}"
            self.said += line
            found = ADDRESS.search(self.said)
        self.what = found[1]
        self.client = httpx.Client(base_url=found[2], timeout=LIMIT)

    def snapshots(self) -> Iterator[Any]:
        with self.client.stream("GET", "/window/events") as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def until(self, condition: Any) -> Any:
        """The first snapshot for which something holds."""
        return next(each for each in self.snapshots() if condition(each))

    def control(self, mode: str) -> None:
        assert self.client.post("/window/control", json={"mode": mode}).status_code == 200

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LIMIT)


@contextmanager
def opened(*options: str, command: Sequence[str] = OPEN, **variables: str) -> Iterator[Watched]:
    """The window in a process, which is ended if a test hasn't done so."""
    process = subprocess.Popen(
        [*command, "--port", "0", *options],
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "COLUMNS": "100", **variables},
    )
    try:
        yield Watched(process)
    finally:
        process.kill()
        process.wait(LIMIT)


@needs_signals
def test_the_reference_waits_before_its_first_step_and_ctrl_c_ends_it_while_a_page_is_open() -> None:
    with opened("--impl", "solution", "--max-tokens", "4", "--seats", "4", "--chunk", "512") as window:
        assert window.what == "S10 served, run by the reference, solutions/tiny_llm/"
        setup = window.client.get("/window/setup").json()
        assert (setup["stage"], setup["chat"], setup["seats"]) == ("S10 served", True, 4)
        there = window.until(lambda each: len(each["requests"]) == len(PROMPTS))
        assert (there["step"], there["mode"]) == (0, "pause")
        assert there["requests"][0]["label"] == PROMPTS[0]
        window.control("step")
        one = window.until(lambda each: each["step"] > 0)
        assert (one["step"], one["mode"]) == (1, "pause")
        assert sum(part["tokens"] for part in one["batch"]) == 512
        models = window.client.get("/v1/models").json()["data"]
        assert [each["id"] for each in models] == [setup["model"]]
        assert window.client.get("/", headers={"Host": "evil.example"}).status_code in (400, 403)
        with window.client.stream("GET", "/window/events") as stream:
            assert next(stream.iter_lines()) == "event: state"
            assert window.stop() == 0
    assert "Traceback" not in window.said


@needs_signals
def test_a_run_without_an_llm_can_be_stepped_played_and_run_again() -> None:
    options = "--impl", "solution", "--stage", "ragged", "--max-tokens", "2", "--chunk", "2048"
    with opened(*options) as window:
        assert window.what.startswith("S6 ragged, run by the reference")
        setup = window.client.get("/window/setup").json()
        assert (setup["chat"], [each["name"] for each in setup["scenes"]]) == (False, ["again"])
        there = window.until(lambda each: len(each["requests"]) == len(PROMPTS))
        assert (there["step"], there["counts"]["waiting"]) == (0, len(PROMPTS) - 8)
        assert window.client.post("/window/scene", json={"name": "again"}).status_code == 409
        window.control("play")
        window.until(lambda each: each["counts"]["finished"] == len(PROMPTS))
        window.control("pause")
        until = time.monotonic() + LIMIT
        while window.client.post("/window/scene", json={"name": "again"}).status_code == 409:
            assert time.monotonic() < until, "the first run has not ended"
        assert window.until(lambda each: each["counts"]["waiting"])["counts"]["finished"] == len(PROMPTS)
        assert window.client.get("/", headers={"Host": "evil.example"}).status_code == 400
        assert window.stop() == 0


@needs_signals
def test_the_fast_engine_can_be_watched_too() -> None:
    with opened("--impl", "solution", "--fast", "--max-tokens", "2", "--chunk", "2048") as window:
        window.until(lambda each: len(each["requests"]) == len(PROMPTS))
        window.control("play")
        done = window.until(lambda each: each["counts"]["finished"] == len(PROMPTS))
        assert done["step"] > 1
        assert window.stop() == 0


@needs_signals
def test_serve_has_the_window_and_ends_while_its_engine_is_paused_and_a_scene_runs() -> None:
    with opened("--impl", "solution", command=SERVE) as window:
        assert window.client.get("/").status_code == 200
        assert window.client.get("/window/setup").json()["chat"] is True
        window.control("pause")
        assert window.client.post("/window/scene", json={"name": "prefix"}).status_code == 202
        assert window.until(lambda each: each["counts"]["waiting"] == 8)["step"] == 0
        assert window.stop() == 0
        assert window.process.stderr is not None
        assert "stopped: 0 finished, 8 cancelled" in window.process.stderr.read()


@needs_signals
def test_where_the_learner_has_written_nothing_the_reference_runs(tmp_path: Path) -> None:
    untouched = make_copy(tmp_path, load_manifest(Course.find()))
    with opened("--stage", "extend", **{ROOT_VARIABLE: str(untouched)}) as window:
        assert window.what.startswith("S7 extend, run by the reference")
        assert "S7 extend needs code that you have not written yet (Week 1 " in window.said
        assert "so the reference runs instead of your code" in window.said
        assert window.stop() == 0


def refused(*options: str) -> str:
    done = subprocess.run(
        [*COMMAND, "--no-open", *options], capture_output=True, text=True, encoding="utf-8", timeout=LIMIT
    )
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_a_stage_that_is_not_shown_is_refused_with_those_that_are() -> None:
    assert "no stage 'paged' in the window" in refused("--stage", "paged")
    assert [stage.name for stage in find_stages(None)] == ["served", "extend", "ragged"]
    assert [stage.name for stage in find_stages("preempt")] == ["preempt"]
    with pytest.raises(CourseError, match="served, documents, preempt, extend, ragged"):
        find_stages("recompute")


def test_a_port_that_is_taken_is_refused_before_the_model_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"can't listen on 127.0.0.1:{port}: it is in use" in refused("--port", str(port))


class Broken:
    """Something that fails where an engine core is wanted."""

    def __call__(self, *arguments: Any) -> Any:
        raise KeyError("made up")


def test_an_engine_that_fails_is_refused_with_its_error() -> None:
    nothing: Any = None
    stage = WatchedStage("S7", "extend", Broken())
    with pytest.raises(CourseError, match="S7 extend fails with KeyError: 'made up'"):
        try_out(stage, LoadedModel(nothing, nothing), "auto")


def test_every_stage_that_is_shown_works() -> None:
    from toys import Letters, toy_model

    tokenizer: Any = Letters()
    for stage in STAGES:
        try_out(stage, LoadedModel(toy_model(), tokenizer), "reference")
