"""What a test is called on the board."""

import pytest
from courses import make_course
from runs import run_plugin

from coursekit.running.titles import sentence

CASES = """
import pytest

@pytest.mark.parametrize("P", [1, 3], ids=lambda P: f"pages of {P}")
@pytest.mark.parametrize(("start", "mask"), [(0, None), (-2, True)])
@pytest.mark.parametrize("engine", ["greedy"])
def test_task_1_reads(start, mask, P, engine):
    pass
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("test_task_2_grouped_heads_share_their_keys", "grouped heads share their keys"),
        ("test_task_12_any_axis[axis=-1]", "any axis [axis=-1]"),
        ("test_task_1_x[start=0-mask=None-pages of 1]", "x [start=0, mask=None, pages of 1]"),
        ("test_task_1_x[pages of 1-tol=1e-06-C=inf]", "x [pages of 1, tol=1e-06, C=inf]"),
        ("test_task_1_x[top-left]", "x [top-left]"),
        ("test_task_1_x[a=1 of 2-b]", "x [a=1 of 2-b]"),
        ("test_the_tool_works", "the tool works"),
    ],
)
def test_a_tests_name_is_read_as_a_sentence(name, says):
    assert sentence(name) == says


def test_the_numbers_of_a_case_stand_with_their_names(tmp_path):
    course = make_course(tmp_path)
    (course.tests / "week_1" / "test_day_1.py").write_text(CASES)
    _, report = run_plugin(course, "tests/week_1/test_day_1.py")
    titles = [test["sentence"] for test in report["tasks"]["1.1.1"]["tests"]]
    assert titles == [
        "reads [greedy, start=0, mask=None, pages of 1]",
        "reads [greedy, start=0, mask=None, pages of 3]",
        "reads [greedy, start=-2, mask=True, pages of 1]",
        "reads [greedy, start=-2, mask=True, pages of 3]",
    ]
