"""The gate that grades the reference and an untouched starter, on a tiny course."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from class_folders import COUNTING
from confinement import no_isolation
from courses import solve, write, write_solution
from fake_judges import by_stubs
from gate_courses import add_test, make_gated_course, run
from rich.console import Console

from authoring.gates import grading as gate
from authoring.gates.gate import Context
from authoring.gates.grading import grade_all, grading
from coursekit.errors import CourseError
from coursekit.paths import Course
from grading.sandbox.choosing import choose

KNOWS_THE_DRAW = """def test_task_1_is_right_for_the_learners_own_numbers(lab):
    import numpy as np

    assert np.random.default_rng(0).integers(1000) == 850
"""
ENDS = b"import os\n\nos._exit(0)\n"


shut_in = pytest.mark.skipif(bool(no_isolation()), reason=no_isolation())


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_gated_course(tmp_path)


def context(course: Course, day: str | None = None) -> Context:
    return Context(course, Console(file=io.StringIO()), 2, day)


@shut_in
def test_a_course_in_order_passes_shut_in(course):
    found = run(grading, course)
    assert found.problems == []
    assert found.looked_at == f"6 days graded, {choose().name}"


@shut_in
def test_a_test_that_holds_only_for_the_learners_own_numbers_is_a_problem(course):
    assert __import__("numpy").random.default_rng(0).integers(1000) == 850
    add_test(course, "week_1/test_day_2.py", KNOWS_THE_DRAW)
    found = run(grading, course, day="1.2")
    # The starter, too: what fails there isn't "not started".
    assert [problem.split(",")[0] for problem in found.problems] == [
        "Day 1.2 (torch) of the reference: 1.2.1 A circle is 'wrong'",
        "Day 1.2 (torch) of the untouched starter: 1.2.1 A circle is 'wrong'",
    ]
    assert "is right for the learners own numbers" in found.problems[0]


def test_every_day_of_both_is_graded(course):
    problems, days = grade_all(context(course), by_stubs)
    assert (problems, days) == ([], 6)


def test_a_reference_that_lacks_a_task_is_a_problem_that_names_it(course):
    body = 'raise NotImplementedError("Week 2 Day 1 Task 2: Total")'
    write_solution(course, "counting.py", COUNTING.decode().replace("return 0", body))
    problems, _ = grade_all(context(course, "2.1"), by_stubs)
    (problem,) = [problem for problem in problems if "the reference" in problem]
    assert problem.startswith("Day 2.1 (torch) of the reference: 2.1.2")
    assert problem.endswith("is 'not started', not 'passed'\n    works: stub")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("DIES", "the grader's process ended with -9"),
        ("FAILS", "the grader failed on it, which says nothing about the code: grade it again"),
        ("REFUSES", "there is no sandbox here"),
    ],
)
def test_a_grader_that_fails_is_a_problem_of_each_day(course, word, says):
    write_solution(course, "counting.py", f"{COUNTING.decode()}\n# {word}\n")
    problems, days = grade_all(context(course, "2.1"), by_stubs)
    assert (len(problems), days) == (2, 2)
    assert all(says in problem for problem in problems)


def test_the_learners_own_code_in_the_checkout_does_not_count(course):
    solve(course, "1.1")
    write(course.starter() / "counting.py", "DIES")
    assert grade_all(context(course), by_stubs) == ([], 6)


def test_without_isolation_the_gate_says_that_it_was_not_run(course, monkeypatch):
    def none() -> None:
        raise CourseError("there is no isolation for learners' code here. bubblewrap: none")

    monkeypatch.setattr(gate, "choose", none)
    found = run(grading, course)
    assert (found.looked_at, found.problems) == ("not run", [])
    assert found.notes == ["there is no isolation for learners' code here. bubblewrap: none"]
