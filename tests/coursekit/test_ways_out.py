"""Code that leaves a test or the whole run early has not passed, whatever way out it takes."""

import pytest
from courses import make_course, solve, write
from runs import change, course_command, run_plugin

WAYS_OUT = {
    "1.1.1": ("return size.width *", "import pytest; pytest.skip('later'); return size.width *"),
    "1.1.2": ("return 2 *", "import unittest; raise unittest.SkipTest('later')\n    return 2 *"),
    "1.2.1": ("return x, y", "import pytest; pytest.exit('enough', 0); return x, y"),
    "2.1.1": ("number = 1\n", "number = 1; import pytest; pytest.importorskip('no_such_module')\n"),
    "2.1.2": ("return sum(", "import pytest; pytest.xfail('later'); return sum("),
}


@pytest.fixture
def course(tmp_path):
    course = make_course(tmp_path)
    solve(course, "1.1", "1.2", "2.1")
    return course


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """One run of a learner who leaves every test by another call."""
    course = make_course(tmp_path_factory.mktemp("course"))
    solve(course, "1.1", "1.2", "2.1")
    for old, new in WAYS_OUT.values():
        change(course, old, new, "shapes.py" if old in shapes(course) else "counting.py")
    ran, found = run_plugin(course, "tests")
    assert ran.returncode == 1, ran.stdout
    return found


def shapes(course):
    return (course.starter() / "shapes.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("task", WAYS_OUT)
def test_a_test_that_the_code_leaves_early_is_wrong(report, task):
    assert report["tasks"][task]["state"] == "wrong"
    message = report["tasks"][task]["first_failure"]
    assert ("ended the program" if task == "1.2.1" else "skipped the test") in message
    assert ":" in message.splitlines()[1]
    assert WAYS_OUT[task][1].splitlines()[0].strip() in message


def test_the_run_goes_on_after_a_call_that_would_end_it(report):
    assert report["finished"]
    assert not report["interrupted"]
    assert len(report["tasks"]["1.2.1"]["tests"]) == 2
    assert list(report["tasks"]) == list(WAYS_OUT)


def test_a_skip_that_the_test_itself_asks_for_stays_one(course):
    write(
        course.tests / "week_1/test_day_1.py",
        "import pytest\n\n\ndef test_task_1_needs_more(lab):\n    lab.shapes.area(lab.shapes.Size(2, 3))\n"
        "    pytest.importorskip('no_such_module')\n",
    )
    ran, found = run_plugin(course, "tests/week_1/test_day_1.py")
    assert (ran.returncode, found["tasks"]["1.1.1"]["state"]) == (0, "skipped")


def test_an_interrupt_that_a_line_raises_is_the_failure_of_its_test(course):
    change(course, "return 2 *", "raise KeyboardInterrupt\n    return 2 *")
    ran, found = run_plugin(course, "tests/week_1")
    assert (ran.returncode, found["interrupted"]) == (1, False)
    assert found["tasks"]["1.1.2"]["state"] == "crashed"
    assert "KeyboardInterrupt\n  src/tiny_llm/shapes.py:" in found["tasks"]["1.1.2"]["first_failure"]
    assert found["tasks"]["1.2.1"]["state"] == "passed"


@pytest.mark.parametrize("place", ["in a test", "in the last test", "on import"])
def test_code_that_ends_python_with_zero_has_not_passed(course, place):
    if place == "on import":
        change(course, "TURN = ", "import os; os._exit(0); TURN = ")
    elif place == "in a test":
        change(course, "return 2 *", "import os; os._exit(0); return 2 *")
    else:
        change(course, "return x, y", "import os; os._exit(0); return x, y")
    ran = course_command(course, "test", "--week", "1")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "with exit code 0 (os._exit?)" in " ".join(ran.stdout.split())
    assert "crashed" in ran.stdout
    assert "Done" not in ran.stdout


def test_ending_python_while_tests_are_read_is_no_success(course):
    write(course.tests / "conftest.py", "import os\n\nos._exit(0)\n")
    ran = course_command(course, "test", "--week", "1")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: ")


def test_what_is_left_unwritten_beside_a_passing_task_leaves_with_one(course):
    solve(course, "1.1.1")
    assert course_command(course, "test", "--week", "1", "--day", "1").returncode == 1
    assert course_command(course, "test", "--week", "1", "--day", "1", "--", "-k", "task_1").returncode == 0
