"""`pdm run bench start`: the parts of a start, timed from outside a process."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from benchmarks import start, start_parts
from benchmarks.ladder import outcomes
from benchmarks.rounds import Samples
from benchmarks.start import PARTS, time_parts
from coursekit.errors import CourseError


def says(*lines: str, then: str = "") -> list[str]:
    """A process that says these lines."""
    return [
        sys.executable,
        "-c",
        f"import time, sys\nfor line in {lines!r}:\n    print(line, flush=True)\n{then}",
    ]


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second each time it is looked at."""
    clock = itertools.count()
    monkeypatch.setattr(start, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))


@pytest.mark.usefixtures("ticks")
def test_a_part_lasts_from_the_one_before_to_the_line_that_ends_it() -> None:
    found = time_parts(says("python", "torch", "first"))
    assert found == {"start": 3, **dict.fromkeys(PARTS, 0), "python": 1, "torch": 1, "first": 1}
    assert list(found) == ["start", *PARTS]


@pytest.mark.usefixtures("ticks")
def test_what_a_library_prints_between_two_parts_or_at_the_end_is_no_part() -> None:
    found = time_parts(says("python", "a warning", "torch", "goodbye"))
    assert found == {"start": 3, **dict.fromkeys(PARTS, 0), "python": 1, "torch": 2}


def test_a_start_that_fails_is_told_with_its_last_words() -> None:
    with pytest.raises(CourseError, match=r"exit code 3:\n(.*\n)*the weights are gone$"):
        time_parts(says("python", then="print('the weights are gone', file=sys.stderr); sys.exit(3)"))


def test_nothing_runs_on_when_the_bench_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[subprocess.Popen[str]]()

    class Noted(subprocess.Popen[str]):
        def __init__(self, *arguments: object, **named: object) -> None:
            super().__init__(*arguments, **named)  # type: ignore[call-overload]
            started.append(self)

    def clock() -> float:
        if started:
            raise KeyboardInterrupt
        return 0.0

    monkeypatch.setattr(subprocess, "Popen", Noted)
    monkeypatch.setattr(start, "time", SimpleNamespace(perf_counter=clock))
    watchdog = threading.Timer(30, lambda: started[0].terminate())
    watchdog.start()
    with pytest.raises(KeyboardInterrupt):
        time_parts(says("python", then="time.sleep(600)"))
    assert watchdog.is_alive(), "the process was not ended"
    watchdog.cancel()
    assert started[0].poll() is not None


@pytest.mark.parametrize(("seconds", "met"), [(7.9, True), (8.1, False)])
def test_the_fast_engine_may_take_twice_the_time_of_torch(seconds: float, met: bool) -> None:
    samples = [
        Samples(case, [{"start": {"start-torch": 4.0, "start-fast": seconds}.get(case.name, 6.0)}])
        for case in start.cases(lambda name: pytest.fail(f"{name} was loaded"), [])
    ]
    assert [each.met for each in outcomes(start.BARS, samples)] == [met]


def test_torch_alone_comes_to_the_end_of_its_second_part(capsys: pytest.CaptureFixture[str]) -> None:
    start_parts.main("torch")
    assert capsys.readouterr().out.split() == list(PARTS)[:2]


@pytest.mark.parametrize("kind", ["served", "fast"])
def test_an_engine_starts_in_all_of_its_parts(kind: str) -> None:
    found = time_parts(start.command(kind))
    assert all(found[part] > 0 for part in PARTS)
