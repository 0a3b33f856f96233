"""What the ladder `shares` measures: whose time is whose, and which steps count."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench_runs import bench
from copies import make_copy
from toy_model import tiny_model
from toy_server import Script, toy_server
from toy_ways import FittingTokenizer

from benchmarks import stopwatch, watched_steps
from benchmarks.ladder import outcomes
from benchmarks.rounds import Samples
from benchmarks.shares import BARS, PARTS, cases
from benchmarks.stopwatch import Stopwatch
from benchmarks.watched_http import stream_from_another_process
from benchmarks.watched_steps import HOST_PARTS, MODEL_PARTS, WatchedSteps, own_copy, shares
from coursekit.errors import CourseError
from coursekit.manifest import Manifest, load_manifest
from coursekit.paths import ROOT_VARIABLE, Course

if TYPE_CHECKING:
    from tiny_llm.engine.llm import LLM


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def take(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stopwatch, "time", made)
    return made


class Cook:
    """Calls that take a known time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def dinner(self) -> str:
        self.clock.take(1)
        for _ in range(2):
            self.chop(3)
        self.clock.take(5)
        return "served"

    def chop(self, seconds: float) -> None:
        self.clock.take(seconds)
        if seconds > 10:
            raise ValueError("too much")


def test_a_call_inside_another_counts_for_its_own_part_only(clock: Clock) -> None:
    watch, cook = Stopwatch(threading.current_thread()), Cook(clock)
    watch.time(cook, "dinner", "cooking")
    watch.time(cook, "chop", "knife")
    assert cook.dinner() == "served"
    clock.take(50)
    cook.chop(2)
    assert watch.seconds == {"cooking": 6, "knife": 8}


def test_a_call_that_fails_counts_too_and_the_next_ones_go_on(clock: Clock) -> None:
    watch, cook = Stopwatch(threading.current_thread()), Cook(clock)
    watch.time(cook, "chop", "knife")
    with pytest.raises(ValueError, match="too much"):
        cook.chop(11)
    clock.take(50)
    cook.chop(1)
    assert watch.seconds == {"knife": 12}


def test_calls_on_other_threads_are_not_timed(clock: Clock) -> None:
    watch, cook = Stopwatch(threading.current_thread()), Cook(clock)
    watch.time(cook, "dinner", "cooking")
    other = threading.Thread(target=cook.dinner)
    other.start()
    other.join()
    assert watch.seconds == {}


def test_shares_are_medians_and_the_loop_has_what_no_part_has() -> None:
    parts = {"model": 50.0, "head": 20.0, "planning": 4.0, "sampling": 6.0, "text": 2.0}
    steps = [{**parts, "step": 90.0}, {**parts, "step": 100.0}, {**parts, "model": 500.0, "step": 600.0}]
    found = shares(steps, event_loop=5.0)
    assert found["step"] == 100
    assert {name: found[name] for name in ("model", "head", "sampling", "http")} == {
        "model": 0.5,
        "head": 0.2,
        "sampling": 0.06,
        "http": 0.05,
    }
    assert found["loop"] == pytest.approx(0.18), "the median of 8, 18 and 68"
    assert found["host_seconds"] == pytest.approx(4 + 6 + 2 + 18 + 5)
    assert found["host"] == pytest.approx(found["host_seconds"] / 100)
    assert shares([]) == {}


def taking(clock: Clock, seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function; each call takes so long."""

    def call(*arguments: Any, **named: Any) -> Any:
        clock.take(seconds)
        return function(*arguments, **named)

    return call


@pytest.fixture
def llm() -> Iterator[LLM]:
    from tiny_llm.engine.limits import Limits
    from tiny_llm.engine.llm import LLM

    tokenizer: Any = FittingTokenizer()
    with LLM(own_copy(tiny_model()), tokenizer, limits=Limits(4, 40, 16, 64)) as made:
        yield made


def run_all(llm: LLM, requests: int, tokens: int) -> None:
    from tiny_llm.engine.params import SamplingParams

    prompts = [[number, 5, 6, 7] for number in range(requests)]
    llm.run_all(prompts, [SamplingParams(max_tokens=tokens, ignore_end=True)] * requests)


def test_the_time_of_a_step_is_divided_among_those_who_take_it(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, llm: LLM
) -> None:
    from tiny_llm.engine.completion import Completion

    monkeypatch.setattr(watched_steps, "time", clock)
    core: Any = llm.core
    for owner, name, seconds in (
        *((core.runner.model, "hidden", 50), (core.runner.model, "logits", 20)),
        *((core.scheduler, "plan", 4), (core, "sample", 6), (llm.batcher, "retire", 2)),
    ):
        monkeypatch.setattr(owner, name, taking(clock, seconds, getattr(owner, name)))
    monkeypatch.setattr(Completion, "push", taking(clock, 1, Completion.push))
    watched = WatchedSteps(llm, 3)
    run_all(llm, requests=3, tokens=6)
    expected = {"model": 50, "head": 20, "planning": 4, "sampling": 6, "text": 3}
    assert watched.steps == [{**expected, "step": 85}] * 4, (
        "six tokens: one step for the prompts, five decodes, the last of which no other step follows"
    )
    assert shares(watched.steps)["loop"] == pytest.approx(2 / 85)


def test_only_steps_in_which_all_requests_decode_are_counted(llm: LLM) -> None:
    calls = []
    watched = WatchedSteps(llm, 3, lambda: calls.append(len(watched.steps)))
    run_all(llm, requests=3, tokens=3)
    run_all(llm, requests=2, tokens=10)
    assert len(watched.steps) == 2
    assert calls == [1, 2]


def test_the_watched_methods_are_those_of_a_copy() -> None:
    model = tiny_model()
    copied = own_copy(model)
    copied.hidden = None  # type: ignore[method-assign, assignment]
    assert callable(model.hidden)
    assert copied.blocks is model.blocks, "the weights are not copied"


def test_a_server_that_refuses_is_an_error() -> None:
    with (
        toy_server(Script(refuses=1)) as url,
        pytest.raises(CourseError, match=r"refuses what the bench asks: .*the queue is full"),
    ):
        stream_from_another_process(url, [{"max_tokens": 1}, {"max_tokens": 1}])


def test_every_part_is_shown() -> None:
    assert set(PARTS) == {*MODEL_PARTS, *HOST_PARTS, "http", "host"}


@pytest.mark.parametrize(("host", "met"), [(9.9, True), (10.1, False)])
def test_the_bar_is_a_tenth_of_the_step(host: float, met: bool) -> None:
    for case in cases(lambda name: pytest.fail(f"{name} was loaded"), range(100)):
        samples = Samples(case, [{"step": 100.0, "host_seconds": host}])
        assert [each.met for each in outcomes(BARS, [samples])] == [met]


def test_without_the_engine_the_day_that_is_missing_is_named(tmp_path: Path) -> None:
    lessons = load_manifest(Course.find()).lessons
    make_copy(tmp_path, Manifest(tuple(each for each in lessons if (each.week, each.day) == (4, 6))))
    done = bench("shares", **{ROOT_VARIABLE: str(tmp_path)})
    assert done.returncode == 2
    assert "this needs code that you have not written yet (Week 4 Day 6 Task 1: " in done.stderr
    assert "Traceback" not in done.stderr
