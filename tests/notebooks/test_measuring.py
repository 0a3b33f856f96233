"""Measurements: what is called, how often, and what comes out."""

from __future__ import annotations

import pytest

from notebooks import measure, measuring
from notebooks.settings import SHORT


class Clock:
    """A clock that moves only while the measured function runs: the n-th call takes the n-th time."""

    def __init__(self, *times: float) -> None:
        self.now, self.times, self.calls = 0.0, iter(times), 0

    def perf_counter(self) -> float:
        return self.now

    def call(self, *arguments: object) -> None:
        self.calls += 1
        self.arguments = arguments
        self.now += next(self.times)


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SHORT, raising=False)


def measured(monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: float) -> float:
    monkeypatch.setattr(measuring, "time", clock)
    return measure(clock.call, 1, "two", seconds=seconds)


def test_the_median_of_all_calls_but_the_first(monkeypatch):
    clock = Clock(100.0, 1.0, 9.0, 2.0)
    assert measured(monkeypatch, clock, 0.5) == 2.0
    assert clock.calls == 4
    assert clock.arguments == (1, "two")


def test_calls_go_on_until_the_time_is_over(monkeypatch):
    clock = Clock(*[1.0] * 100)
    assert measured(monkeypatch, clock, 10.0) == 1.0
    assert clock.calls == 11


def test_half_a_second_is_measured_where_nothing_else_is_asked_for(monkeypatch):
    clock = Clock(*[0.125] * 20)
    monkeypatch.setattr(measuring, "time", clock)
    assert measure(clock.call) == 0.125
    assert clock.calls == 5


def test_a_short_run_measures_one_call(monkeypatch):
    monkeypatch.setenv(SHORT, "1")
    clock = Clock(5.0, 3.0)
    assert measured(monkeypatch, clock, 60.0) == 3.0
    assert clock.calls == 2
