"""From what the tests found to marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import make_course

from coursekit.manifest import Lesson, load_manifest
from coursekit.running.results import Report, Result
from coursekit.task_state import TaskState
from grading.marks import TaskMark
from grading.running.marking import mark_days, mark_nothing

PASSED, WRONG, SKIPPED = TaskState.PASSED, TaskState.WRONG, TaskState.SKIPPED
NOT_STARTED, CRASHED = TaskState.NOT_STARTED, TaskState.CRASHED


@pytest.fixture
def lessons(tmp_path: Path) -> tuple[Lesson, ...]:
    return load_manifest(make_course(tmp_path)).lessons


def result_of(state: TaskState, message: str = "", **more: object) -> Result:
    return Result("id", "1.1.1", "a sentence", state, message=message, **more)  # type: ignore[arg-type]


def mark(lessons: tuple[Lesson, ...], *tests: Result, planned: int | None = None, **more: object) -> TaskMark:
    """The mark of Task 1.1.1, which has 10 points."""
    count = len(tests) if planned is None else planned
    report = Report("learner", "torch", "cpu", {"1.1.1": count}, list(tests), finished=True, **more)  # type: ignore[arg-type]
    return mark_days(lessons, report)[0].tasks[0]


def test_a_task_whose_tests_all_passed_earns_its_points(lessons: tuple[Lesson, ...]) -> None:
    assert mark(lessons, result_of(PASSED), result_of(PASSED)) == TaskMark(
        "1.1.1", "Area", points=10, earned=10, state=PASSED, passed=2, planned=2
    )


@pytest.mark.parametrize("state", [WRONG, CRASHED, NOT_STARTED])
def test_one_test_that_failed_costs_all_points(state: TaskState, lessons: tuple[Lesson, ...]) -> None:
    tests = (result_of(PASSED), result_of(state, "why", where="test_day_1.py:3"), result_of(state, "later"))
    assert mark(lessons, *tests) == TaskMark(
        "1.1.1",
        "Area",
        points=10,
        earned=0,
        state=state,
        passed=1,
        planned=3,
        failure="why",
        sentence="a sentence",
        where="test_day_1.py:3",
    )


def test_a_task_whose_tests_were_not_all_run_earns_nothing(lessons: tuple[Lesson, ...]) -> None:
    found = mark(lessons, result_of(PASSED), result_of(PASSED), planned=3)
    assert (found.earned, found.points, found.state) == (0, 10, PASSED)
    assert found.failure == "only 2 of its 3 tests were run"


def test_a_task_that_was_planned_for_no_test_earns_nothing(lessons: tuple[Lesson, ...]) -> None:
    assert mark(lessons, result_of(PASSED), planned=0).earned == 0


def test_a_task_whose_tests_never_ran_earns_nothing(lessons: tuple[Lesson, ...]) -> None:
    found = mark(lessons, planned=4)
    assert (found.earned, found.points, found.state, found.planned) == (0, 10, NOT_STARTED, 4)
    assert found.failure == "its tests were not run"


def test_a_file_of_tests_that_could_not_be_read_says_so_for_its_own_day(lessons: tuple[Lesson, ...]) -> None:
    errors = [
        {"where": "tests/week_2/test_day_1.py:1", "message": "other"},
        {"where": "tests/week_1/test_day_1.py:7", "message": "no such name"},
    ]
    report = Report("learner", "torch", "cpu", errors=errors)
    first, second, third = mark_days(lessons, report)
    assert (first.tasks[0].failure, first.tasks[0].where) == ("no such name", "tests/week_1/test_day_1.py:7")
    assert second.tasks[0].failure == "its tests were not run"
    assert third.tasks[1].failure == "other"


def test_forbidden_calls_cost_all_points(lessons: tuple[Lesson, ...]) -> None:
    found = mark(
        lessons, result_of(PASSED, shortcuts=("torch.softmax",)), result_of(PASSED, shortcuts=("a.b",))
    )
    assert (found.earned, found.points, found.state) == (0, 10, PASSED)
    assert found.shortcuts == ("a.b", "torch.softmax")
    assert found.failure == "it leaves its work to a.b and torch.softmax"


def test_a_task_that_can_not_run_here_costs_no_points(lessons: tuple[Lesson, ...]) -> None:
    found = mark(lessons, result_of(SKIPPED, "no GPU"), result_of(SKIPPED, "no GPU"))
    assert (found.earned, found.points, found.state, found.failure) == (0, 0, SKIPPED, "no GPU")


def test_a_skipped_test_beside_others_costs_nothing(lessons: tuple[Lesson, ...]) -> None:
    assert mark(lessons, result_of(PASSED), result_of(SKIPPED)).earned == 10
    assert mark(lessons, result_of(WRONG), result_of(SKIPPED)).earned == 0


def test_a_run_that_ends_after_a_skipped_test_costs_the_points(lessons: tuple[Lesson, ...]) -> None:
    found = mark(lessons, result_of(SKIPPED, "no GPU"), planned=2)
    assert (found.earned, found.points) == (0, 10)
    assert found.failure == "only 1 of its 2 tests were run"


def test_the_task_whose_stub_was_reached_is_named(lessons: tuple[Lesson, ...]) -> None:
    tests = (result_of(NOT_STARTED), result_of(NOT_STARTED, needs="1.1.2 Perimeter"))
    assert mark(lessons, *tests).needs == "1.1.2 Perimeter"
    assert mark(lessons, *tests, result_of(WRONG)).needs == ""


def test_days_and_tasks_come_as_the_course_has_them(lessons: tuple[Lesson, ...]) -> None:
    days = mark_days(lessons, Report("learner", "torch", "cpu"))
    assert [(day.name, day.title, day.chapter) for day in days] == [
        ("1.1", "Rectangles", "week_1/day_1.md"),
        ("1.2", "Circles", "week_1/day_2.md"),
        ("2.1", "Counting", "week_2/day_1.md"),
    ]
    assert [(day.earned, day.points) for day in days] == [(0, 15), (0, 20), (0, 25)]
    assert [task.name for day in days for task in day.tasks] == ["1.1.1", "1.1.2", "1.2.1", "2.1.1", "2.1.2"]


def test_who_was_not_run_has_every_task_and_no_point(lessons: tuple[Lesson, ...]) -> None:
    days = mark_nothing(lessons)
    assert [(day.earned, day.points) for day in days] == [(0, 15), (0, 20), (0, 25)]
    assert {task.state for day in days for task in day.tasks} == {NOT_STARTED}
    assert {task.failure for day in days for task in day.tasks} == {""}
