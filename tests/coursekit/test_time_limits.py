"""A test that never ends is stopped, by force if need be, and costs its task no further tests."""

import sys

import pytest
from courses import make_course, solve, write
from runs import change, course_command, run_plugin

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows interrupts no test by a signal")
DAY = """import math
import time

import pytest


def test_task_1_has_the_area_of_a_circle(lab):
    assert math.isclose(lab.shapes.Circle(2.0).area, 4 * math.pi)


def test_task_1_starts_on_the_x_axis(lab):
    assert lab.shapes.Circle(2.0)(0.0) == (2.0, 0.0)


def test_task_1_is_not_run_after_that(lab):
    raise AssertionError("never reached")


@pytest.mark.timeout(30)
def test_task_1_has_a_limit_of_its_own(lab):
    time.sleep(1.5)
"""
ENDLESS = "while True:\n            pass"
STUBBORN = """while True:
            try:
                time.sleep(1)
            except BaseException:
                pass"""
# It keeps the interpreter to itself, as a kernel does that Numba has compiled.
COMPILED = "collections.deque(itertools.count(), maxlen=0)"
ENDLESS_THREAD = (
    "import threading; threading.Thread(target=threading.Event().wait).start()\n        return x, y"
)


@pytest.fixture
def course(tmp_path):
    course = make_course(tmp_path)
    write(course.tests / "week_1/test_day_2.py", DAY)
    lesson = course.lessons / "week_1/day_2/lesson.toml"
    write(lesson, lesson.read_text(encoding="utf-8").replace("[[task]]", "seconds = 1\n\n[[task]]"))
    solve(course, "1.1", "1.2", "2.1")
    return course


@posix
def test_after_a_test_that_does_not_end_the_rest_of_its_task_is_not_run(course):
    change(course, "return x, y", ENDLESS)
    ran, found = run_plugin(course, "tests")
    assert ran.returncode == 1
    task = found["tasks"]["1.2.1"]
    assert [test["state"] for test in task["tests"]] == ["passed", "crashed", "skipped", "skipped"]
    assert task["state"] == "crashed"
    assert task["first_failure"].startswith("ran longer than 1 s and was stopped")
    assert "not run: another test of its task did not end" in task["tests"][2]["message"]
    assert found["tasks"]["2.1.1"]["state"] == "passed"


def test_a_tests_own_limit_goes_before_that_of_its_day(course):
    ran, found = run_plugin(course, "tests/week_1/test_day_2.py", "-k", "own")
    assert (ran.returncode, found["tasks"]["1.2.1"]["state"]) == (0, "passed")


def test_a_limit_on_the_command_line_goes_before_all(course):
    change(course, "return x, y", "import time; time.sleep(2); return x, y")
    ran, _ = run_plugin(course, "tests/week_1/test_day_2.py", "-k", "x_axis", "--timeout", "20")
    assert ran.returncode == 0, ran.stdout


WITH_EXAMPLES = """from hypothesis import given, settings
from hypothesis import strategies as st

from coursekit import lab as door


@settings(deadline=None, database=None)
@given(st.integers(1, 5))
def test_task_1_whatever_is_asked_for(radius):
    assert door.active().shapes.Circle(radius)(0.0) == (radius, 0.0)


def test_task_1_goes_on(lab):
    pass
"""


@posix
def test_an_example_that_does_not_end_is_not_tried_again(course):
    write(course.tests / "week_1/test_day_2.py", WITH_EXAMPLES)
    change(course, "return x, y", ENDLESS)
    ran = course_command(course, "test", "--week", "1", "--day", "2")
    said = " ".join(ran.stdout.split())
    assert ran.returncode == 1
    assert "ran longer than 1 s and was stopped" in said
    assert "tests/week_1/test_day_2.py" in said
    assert "(0 of 2 tests pass, 1 not run)" in said


@posix
@pytest.mark.parametrize("code", [STUBBORN, COMPILED], ids=["stubborn", "compiled"])
def test_what_no_signal_interrupts_is_ended_with_its_process_and_told(course, code):
    change(course, "return x, y", f"import collections, itertools, time\n        {code}")
    ran = course_command(course, "test", "--week", "1")
    said = " ".join(ran.stdout.split())
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "passed 10/10 1.1.1" in said
    assert "1.2.1 A circle: crashed starts on the x axis" in said
    assert "ran for 6 s and could not be interrupted, so Python was ended" in said
    assert "src/tiny_llm/shapes.py:" in said
    assert "in __call__" in said


def test_a_thread_that_never_ends_holds_nothing_up(course):
    change(course, "return x, y", ENDLESS_THREAD)
    ran = course_command(course, "test", "--week", "1", "--day", "2", "--", "-k", "x_axis")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 of its 4 tests ran" in ran.stdout
