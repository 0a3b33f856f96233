"""A test with drawn examples says what the code raised, however Hypothesis repeats it."""

import sys

import pytest
from courses import make_course, solve, write
from runs import change, run_plugin

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows interrupts no test by a signal")
DAY = """import itertools
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit import lab as door

DRAWN = itertools.count(1)


def slow(number):
    if next(DRAWN) > SLOW_FROM:
        time.sleep(60)
    return number


@settings(deadline=None, database=None, derandomize=True)
@given(st.integers(1, 2).map(slow), st.integers(1, 100))
def test_task_1_whatever_is_asked_for(radius, other):
    with Path("calls").open("a") as file:
        file.write("+")
    assert door.active().shapes.Circle(radius)(0.0) == (radius, 0.0)
"""
RAISES = 'raise ValueError("as the code says")\n        return x, y'
RAISES_ONCE = f'if not hasattr(Circle, "called"):\n            Circle.called = True\n            {RAISES}'


@pytest.fixture
def course(tmp_path):
    course = make_course(tmp_path)
    lesson = course.lessons / "week_1/day_2/lesson.toml"
    write(lesson, lesson.read_text(encoding="utf-8").replace("[[task]]", "seconds = 1\n\n[[task]]"))
    return course


def task_of(course, slow_from=10**9):
    """What the report says of the task whose test draws examples, slowly from some example on."""
    day = DAY.replace("SLOW_FROM", str(slow_from))
    write(course.tests / "week_1/test_day_2.py", day)
    ran, found = run_plugin(course, "tests/week_1/test_day_2.py")
    assert "1.2.1" in found["tasks"], ran.stdout + ran.stderr
    return found["tasks"]["1.2.1"]


def test_a_stub_ends_the_test_with_the_first_example(course):
    task = task_of(course)
    assert task["state"] == "not started"
    assert (course.root / "calls").read_text(encoding="utf-8") == "+"
    line = next(n for n, text in enumerate(DAY.splitlines(), start=1) if "assert" in text)
    assert task["tests"][0]["where"].endswith(f"test_day_2.py:{line}")


@posix
def test_a_failure_is_told_though_the_search_for_a_simpler_example_takes_too_long(course):
    solve(course, "1.2")
    change(course, "return x, y", RAISES)
    said = task_of(course, slow_from=2)["first_failure"]
    assert said.startswith("ValueError: as the code says\n  src/tiny_llm/shapes.py:"), said


@posix
def test_a_time_limit_within_the_drawing_of_an_example_is_told_as_one(course):
    solve(course, "1.2")
    said = task_of(course, slow_from=4)["first_failure"]
    assert said.startswith("ran longer than 1 s and was stopped"), said


def test_a_failure_that_does_not_come_again_is_told_as_it_was_raised(course):
    solve(course, "1.2")
    change(course, "return x, y", RAISES_ONCE)
    said = task_of(course)["first_failure"]
    assert said.startswith("ValueError: as the code says\n  src/tiny_llm/shapes.py:"), said
