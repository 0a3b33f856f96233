"""The pytest plugin chooses the implementation and folds tests into the states of tasks."""

import pytest
from courses import make_course, solve, write
from runs import change, run_plugin

DAY_1 = """import pytest
from coursekit.check import CheckFailed, check_raises


def test_task_1_multiplies_width_by_height(lab):
    if lab.shapes.area(lab.shapes.Size(2, 3)) != 6:
        raise CheckFailed("the area: 6 expected")


@pytest.mark.parametrize("side", [1, 2])
def test_task_1_is_never_negative(lab, side):
    assert lab.shapes.area(lab.shapes.Size(side, 1)) >= 0


@pytest.mark.gpu
def test_task_1_runs_on_a_gpu(lab):
    raise RuntimeError("never reached")


def test_task_2_refuses_a_negative_side(lab):
    check_raises(ValueError, lambda: lab.shapes.perimeter(lab.shapes.Size(-1, 3)))
"""
COMPUTES = """
def test_task_2_has_a_length(lab):
    assert lab.numpy(lab.shapes.perimeter(lab.shapes.Size(2, 3))).sum() > 0
"""
DAY_2 = """import pytest


def test_task_1_has_an_area(lab):
    assert lab.shapes.Circle(2.0).area > 0


def test_task_1_comes_round(lab):
    lab.shapes.Circle(2.0)(1.0)
"""
WEEK_2 = """import pytest


@pytest.mark.gpu
def test_task_1_counts_on_a_gpu(lab):
    raise RuntimeError("never reached")


def test_task_2_adds_up(lab):
    try:
        lab.counting.total(4)
    except Exception as error:
        raise ValueError("the sum failed") from error
"""
OUTSIDE = """import os
import subprocess
import sys


def test_children_find_the_same_package():
    import tiny_llm

    code = "import tiny_llm; print(tiny_llm.__file__)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/")
    assert child.stdout.strip() == tiny_llm.__file__
    assert os.environ["TEST_PACKAGE"] in tiny_llm.__file__
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """One run of a learner with a wrong, a missing and two crashing tasks."""
    course = make_course(tmp_path_factory.mktemp("course"))
    for file, text in (
        ("week_1/test_day_1", DAY_1),
        ("week_1/test_day_2", DAY_2),
        ("week_2/test_day_1", WEEK_2),
    ):
        write(course.tests / f"{file}.py", text)
    write(course.root / "pyproject.toml", "[tool.pytest.ini_options]\ntimeout = 1\n")
    solve(course, "1.1.1", "1.2", "2.1.2")
    change(course, "size.width * size.height ", "size.width + size.height ")
    change(course, "return TURN / 2 * square(self.radius)", "return self.radius + None")
    change(course, "return x, y", "while True:\n            pass")
    ran, found = run_plugin(course, "--coursekit-quiet", "tests")
    assert ran.returncode == 1
    return found


def test_every_task_has_its_state(report):
    states = {name: task["state"] for name, task in report["tasks"].items()}
    assert states == {
        "1.1.1": "wrong",
        "1.1.2": "not started",
        "1.2.1": "crashed",
        "2.1.1": "skipped",
        "2.1.2": "not started",
    }


def test_a_wrong_task_counts_its_tests_and_tells_the_first_failure(report):
    task = report["tasks"]["1.1.1"]
    assert (task["passed"], task["failed"], task["skipped"]) == (2, 1, 1)
    assert task["first_failure"] == "the area: 6 expected"
    assert task["complete"]
    assert [test["sentence"] for test in task["tests"]][:2] == [
        "multiplies width by height",
        "is never negative [side=1]",
    ]
    assert task["tests"][0]["where"] == "tests/week_1/test_day_1.py:7"


def test_a_crash_tells_the_learners_line_and_the_exception(report):
    message = report["tasks"]["1.2.1"]["tests"][0]["message"]
    assert message.startswith("TypeError: unsupported operand")
    assert "src/tiny_llm/shapes.py:" in message
    assert "return self.radius + None" in message
    assert "an optional argument that was not given (test it with `is None`)" in message
    assert "Traceback" not in message


def test_a_test_that_never_ends_is_stopped_where_it_was(report):
    message = report["tasks"]["1.2.1"]["tests"][1]["message"]
    assert message.startswith("ran longer than 1 s and was stopped")
    assert "in __call__" in message


def test_a_stub_of_another_task_is_named_even_behind_another_exception(report):
    assert report["tasks"]["2.1.2"]["tests"][0]["needs"] == "2.1.1 Counting up"
    assert report["tasks"]["1.1.2"]["tests"][0]["needs"] == ""


def test_a_gpu_test_says_why_it_did_not_run(report):
    assert "needs a GPU" in report["tasks"]["2.1.1"]["tests"][0]["message"]


@pytest.mark.parametrize(("impl", "folder"), [("learner", "src"), ("solution", "solutions")])
def test_imports_and_child_processes_find_the_implementation(tmp_path, monkeypatch, impl, folder):
    course = make_course(tmp_path)
    write(course.tests / "test_outside.py", OUTSIDE)
    monkeypatch.setenv("TEST_PACKAGE", str(tmp_path / folder / "tiny_llm"))
    ran, found = run_plugin(course, "--impl", impl, "tests")
    assert [test["state"] for test in found["others"]] == ["passed"], ran.stdout
    state = "passed" if impl == "solution" else "not started"
    assert {task["state"] for task in found["tasks"].values()} == {state}
    assert ran.returncode == (0 if impl == "solution" else 1)


def test_a_slip_of_syntax_crashes_the_tasks_of_that_file_with_its_line(tmp_path):
    course = make_course(tmp_path)
    solve(course, "1.1")
    change(course, "return 2 *", "return 2 * *")
    _, found = run_plugin(course, "tests")
    assert found["tasks"]["1.1.1"]["state"] == "crashed"
    assert found["tasks"]["1.1.1"]["first_failure"].startswith(
        "SyntaxError: invalid syntax\n  src/tiny_llm/shapes.py:"
    )
    assert found["tasks"]["2.1.1"]["state"] == "not started"


def test_an_assert_of_the_learners_own_is_a_crash(tmp_path):
    course = make_course(tmp_path)
    solve(course, "1.1")
    change(course, "return 2 *", "assert size.width == 7\n    return 2 *")
    _, found = run_plugin(course, "tests/week_1/test_day_1.py")
    assert found["tasks"]["1.1.2"]["state"] == "crashed"
    assert "an assert in your own code does not hold" in found["tasks"]["1.1.2"]["first_failure"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("if torch.zeros(2):\n        return 1", "an array is neither true nor false"),
        ("return torch.zeros(2, 3, 4) @ torch.zeros(2, 5, 4).T", "`.mT` swaps the last two"),
        ("return None < 0", "an optional argument that was not given (test it with `is None`)"),
        ("return None", "a value is None here: is a `return` missing?"),
        ("return (lambda x: x)(1, causal=True)", "this call and the function that it calls don't agree"),
        (
            "return 1 - torch.zeros(2, 3).max(0)",
            "max along an axis gives values and indices: amax gives values",
        ),
        (
            "return torch.zeros(12).reshape(5, 2)",
            "has 12 numbers, and these sizes make another product: 5, 2",
        ),
    ],
    ids=["truth", "T", "None given", "None returned", "keyword", "max", "reshape"],
)
def test_a_crash_that_says_little_is_explained(tmp_path, body, says):
    course = make_course(tmp_path)
    solve(course, "1.1")
    change(course, "return 2 *", f"import torch\n    {body}\n    return 2 *")
    write(course.tests / "week_1/test_day_1.py", COMPUTES)
    _, found = run_plugin(course, "tests/week_1/test_day_1.py")
    assert found["tasks"]["1.1.2"]["state"] == "crashed"
    assert says in found["tasks"]["1.1.2"]["first_failure"]


@pytest.mark.parametrize(
    ("file", "test", "says"),
    [
        (
            "week_1/test_day_1.py",
            "def test_area():\n    pass\n",
            r"a day's test is called test_task_<number>_",
        ),
        ("week_1/test_circles.py", "def test_task_1_is_round():\n    pass\n", "stand in test_day_<day>.py"),
        ("week_1/test_day_1.py", "def test_task_7_is_round():\n    pass\n", "Day 1.1 has no task 7"),
        ("week_1/test_day_5.py", "def test_task_1_is_round():\n    pass\n", "there is no Day 1.5"),
    ],
)
def test_a_test_that_belongs_to_no_task_is_an_error(tmp_path, file, test, says):
    course = make_course(tmp_path)
    write(course.tests / file, test)
    ran, _ = run_plugin(course, "tests")
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert says in ran.stderr
    assert file in ran.stderr


def test_choosing_tests_leaves_their_task_incomplete(tmp_path):
    course = make_course(tmp_path)
    solve(course, "1.2")
    _, found = run_plugin(course, "tests/week_1/test_day_2.py", "-k", "x_axis")
    assert found["planned"] == {"1.2.1": 2}
    assert found["tasks"]["1.2.1"]["passed"] == 1
    assert not found["tasks"]["1.2.1"]["complete"]


def test_days_outside_the_mlx_track_are_skipped_with_the_reason(tmp_path):
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    course = make_course(tmp_path)
    text = (course.solution() / "counting.py").read_text(encoding="utf-8")
    write(course.solution("tiny_llm_mlx") / "counting.py", text)
    _, found = run_plugin(course, "--impl", "solution", "--backend", "mlx", "tests")
    assert found["tasks"]["2.1.1"]["state"] == "passed"
    assert found["tasks"]["1.1.1"]["state"] == "skipped"
    assert "the MLX track covers days 2.1" in found["tasks"]["1.1.1"]["tests"][0]["message"]


INTERPRETED = """import os


def test_the_interpreter_is_chosen_before_anybody_imports_triton():
    assert os.environ.get("TRITON_INTERPRET") == os.environ.get("WANTED")
"""


@pytest.mark.parametrize(("before", "wanted"), [(None, "1"), ("0", "0")])
def test_on_the_cpu_triton_interprets_unless_told_otherwise(tmp_path, monkeypatch, before, wanted):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    if before is not None:
        monkeypatch.setenv("TRITON_INTERPRET", before)
    monkeypatch.setenv("WANTED", wanted)
    course = make_course(tmp_path)
    write(course.tests / "conftest.py", "import os\n\nassert 'TRITON_INTERPRET' in os.environ\n")
    write(course.tests / "test_outside.py", INTERPRETED)
    ran, found = run_plugin(course, "--device", "cpu", "tests/test_outside.py")
    assert [test["state"] for test in found["others"]] == ["passed"], ran.stdout


HELPER = """# A line in front, so that
# no line of the test has
# the number of this one.
from coursekit.check import check_equal


def compare(actual):
    check_equal(actual, 6)
"""
WITH_HELPER = """from week_1.helper import compare


def test_task_1_is_compared_elsewhere(lab):
    compare(lab.shapes.area(lab.shapes.Size(2, 3)))
"""


def test_a_failure_in_a_helper_is_shown_at_the_line_of_the_test(tmp_path):
    course = make_course(tmp_path)
    write(course.tests / "week_1/__init__.py", "")
    write(course.tests / "week_1/helper.py", HELPER)
    write(course.tests / "week_1/test_day_1.py", WITH_HELPER)
    solve(course, "1.1.1")
    change(course, "size.width * size.height ", "size.width + size.height ")
    _, found = run_plugin(course, "tests/week_1/test_day_1.py")
    assert found["tasks"]["1.1.1"]["tests"][0]["where"] == "tests/week_1/test_day_1.py:5"
