"""Averages and percentiles of a server's figures, and that it doesn't remember for ever."""

from __future__ import annotations

import math
import statistics
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_llm.ragged.metrics import RECENT, Metrics, mean, percentile

MANY = settings(max_examples=200, deadline=None, derandomize=True, database=None)
numbers = st.lists(st.floats(0, 1e3), min_size=1, max_size=60)


def test_there_is_no_average_and_no_percentile_of_nothing():
    assert mean([]) is None
    assert percentile([], 95) is None


@MANY
@given(values=numbers)
def test_the_mean_is_the_average(values):
    found = mean(iter(values))
    assert found is not None
    assert math.isclose(found, statistics.fmean(values), abs_tol=1e-9)


@pytest.mark.parametrize(
    ("percent", "expected"), [(1, 1), (5, 1), (6, 2), (50, 10), (51, 11), (95, 19), (96, 20), (100, 20)]
)
def test_percentiles_of_twenty(percent, expected):
    assert percentile([*range(20, 10, -1), *range(1, 11)], percent) == expected


@MANY
@given(values=numbers, percent=st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_this_share_does_not_exceed(values, percent):
    def share(value: float) -> float:
        return 100 * sum(other <= value for other in values) / len(values)

    found = percentile(values, percent)
    assert found is not None
    assert found in values
    assert share(found) >= percent
    assert all(share(value) < percent for value in values if value < found)


def test_only_the_newest_count():
    metrics = Metrics()
    for n in range(RECENT + 7):
        metrics.step(n, 1)
        metrics.token(since=0.0, first=False)
        metrics.token(since=0.0, first=True)
    assert list(metrics.occupancies) == list(range(7, RECENT + 7))
    assert len(metrics.gaps) == len(metrics.first_tokens) == RECENT
    assert (metrics.steps, metrics.tokens) == (RECENT + 7, 2 * (RECENT + 7))


def test_a_step_uses_a_share_of_its_token_budget():
    metrics = Metrics()
    for issued in (8, 6, 1):
        metrics.step(issued, 8)
    assert list(metrics.occupancies) == [1.0, 0.75, 0.125]


def test_the_first_token_is_timed_apart_from_the_others():
    metrics, start = Metrics(), time.perf_counter()
    first = metrics.token(since=start, first=True)
    second = metrics.token(since=first, first=False)
    assert start <= first <= second
    assert list(metrics.first_tokens) == [first - start]
    assert list(metrics.gaps) == [second - first]
