"""The gates on a tiny course: each passes when all is well and finds the one thing that is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import solve, write
from gate_courses import add_test, make_gated_course, run

from authoring.gates.agreement import agreement
from authoring.gates.lint import lint
from authoring.gates.mlx import mlx
from authoring.gates.order import order
from authoring.gates.reference import reference
from authoring.gates.starter import starter
from coursekit.paths import Course

NEEDS_CIRCLES = """def test_task_2_goes_round_a_circle_too(lab):
    assert lab.shapes.Circle(1.0).area > 3
"""
SWALLOWS_THE_STUB = """def test_task_1_fails_in_its_own_way(lab):
    try:
        area = lab.shapes.area(lab.shapes.Size(1, 1))
    except NotImplementedError:
        area = None
    assert area + 1 == 2
"""


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_gated_course(tmp_path)


def test_a_course_in_order_passes_starter_and_order(course):
    found = run(starter, course)
    assert found.problems == []
    assert "5 tasks not started" in found.looked_at
    found = run(order, course)
    assert found.problems == []
    assert found.looked_at == "3 days (torch)"


def test_an_edited_starter_is_a_problem_that_names_the_file(course):
    solve(course, "1.1.1")
    (problem,) = run(starter, course).problems
    assert problem.startswith("src/tiny_llm/shapes.py differs")
    assert "+    raise NotImplementedError" in problem


def test_the_learners_own_code_does_not_count_as_the_untouched_starter(course):
    solve(course, "1.1", "1.2", "2.1")
    problems = run(starter, course).problems
    assert [problem.split(";")[0] for problem in problems] == [
        "src/tiny_llm/counting.py differs",
        "src/tiny_llm/shapes.py differs",
    ]


def test_a_task_that_an_untouched_starter_passes_is_a_problem(course):
    write(course.tests / "week_1" / "test_day_2.py", "def test_task_1_holds_without_work(lab):\n    pass\n")
    (problem,) = run(starter, course).problems
    assert "1.2.1 A circle is 'passed', not 'not started'" in problem


def test_a_task_that_crashes_on_stubs_is_a_problem(course):
    add_test(course, "week_1/test_day_1.py", SWALLOWS_THE_STUB)
    (problem,) = run(starter, course).problems
    assert "1.1.1 Area is 'crashed', not 'not started'" in problem
    assert "TypeError" in problem


def test_a_task_whose_tests_read_wrong_on_stubs_is_a_problem(course):
    add_test(course, "week_1/test_day_1.py", SWALLOWS_THE_STUB.replace("area + 1 == 2", "area"))
    (problem,) = run(starter, course).problems
    assert "1.1.1 Area is 'wrong'" in problem


def test_a_day_whose_tests_need_later_code_breaks_the_order(course):
    add_test(course, "week_1/test_day_1.py", NEEDS_CIRCLES)
    (problem,) = run(order, course).problems
    assert problem.startswith(
        "Day 1.1 (torch) with stubs elsewhere: 1.1.2 Perimeter is 'not started', not 'passed'"
    )


def test_a_day_whose_tests_need_earlier_code_keeps_the_order(course):
    add_test(course, "week_2/test_day_1.py", NEEDS_CIRCLES)
    assert run(order, course).problems == []


def test_a_day_whose_tests_need_an_earlier_day_that_it_does_not_name_breaks_the_order(course):
    add_test(course, "week_2/test_day_1.py", NEEDS_CIRCLES)
    lesson = course.lessons / "week_2" / "day_1" / "lesson.toml"
    lesson.write_text('needs = ["1.1"]\n' + lesson.read_text(encoding="utf-8"), encoding="utf-8")
    (problem,) = run(order, course).problems
    assert problem.startswith("Day 2.1 (torch) with stubs elsewhere")


def test_a_day_can_be_looked_at_alone(course):
    add_test(course, "week_1/test_day_1.py", NEEDS_CIRCLES)
    found = run(order, course, day="1.2")
    assert found.problems == []
    assert found.looked_at == "1 day (torch)"


def test_a_test_file_that_cannot_be_read_is_a_problem(course):
    write(course.tests / "week_1" / "test_day_2.py", "import nothing_of_this_name\n")
    (problem,) = run(order, course).problems
    assert "1.2.1 A circle has no result" in problem
    assert "nothing_of_this_name" in problem


def test_a_task_without_tests_is_a_problem(course):
    write(course.tests / "week_2" / "test_day_1.py", "def test_task_1_counts(lab):\n    assert False\n")
    problems = run(agreement, course).problems
    assert "2.1.2 A sum has no test: add test_task_2_<what it says> to tests/week_2/test_day_1.py" in problems
    assert not any(problem.startswith("2.1.1") for problem in problems)


def test_a_task_without_a_chapter_is_a_problem(course):
    assert any("Day 1.2 names this chapter" in problem for problem in run(agreement, course).problems)


def test_a_reference_that_passes_its_suite_passes(course):
    found = run(reference, course)
    assert found.problems == []
    assert "6 passed" in found.looked_at


def test_a_reference_that_fails_a_test_is_a_problem_with_pytests_last_line(course):
    add_test(
        course, "week_1/test_day_1.py", "def test_task_1_is_odd(lab):\n    assert lab.shapes.TURN == 6\n"
    )
    (problem,) = run(reference, course).problems
    assert problem.startswith("`pdm run test-solution` fails: 1 failed, 6 passed")


def test_the_mlx_reference_must_pass_the_days_that_it_covers(course):
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    shapes = (course.solution() / "shapes.py").read_text(encoding="utf-8")
    write(course.solution("tiny_llm_mlx") / "shapes.py", shapes)
    found = run(mlx, course)
    assert found.problems == []
    assert found.looked_at == "2 days"

    write(course.solution("tiny_llm_mlx") / "shapes.py", shapes.replace("TURN / 2 *", "TURN *"))
    (problem,) = run(mlx, course).problems
    assert problem.startswith("Day 1.2 (mlx) on the reference: 1.2.1 A circle is 'wrong', not 'passed'")


def test_lint_finds_what_each_of_its_tools_finds(course):
    write(course.solution() / "sloppy.py", "import os\n\nlength : int = 'three'\n")
    problems = run(lint, course).problems
    assert [problem.splitlines()[0] for problem in problems] == ["ruff check", "ruff format", "mypy"]
    assert all("sloppy.py" in problem for problem in problems)
