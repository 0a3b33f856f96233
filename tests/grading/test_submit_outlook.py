"""`pdm run submit`: what the learner is told that the grader will see."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from courses import (
    learner_text,
    make_course,
    solve,
    write,
    write_package,
    write_solution,
)
from rich.console import Console
from runs import change
from submitting import FakeJudge, contents, line, record, submitted

from coursekit.paths import Course
from coursekit.running.results import Result
from coursekit.task_state import TaskState
from grading.submit import hand_in


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """The tiny course, whose learner has done Day 1.1."""
    course = make_course(tmp_path / "course")
    solve(course, "1.1")
    return course


def test_what_the_judge_finds_is_shown_task_by_task(course: Course) -> None:
    record(course, _1_1_1="passed", _1_1_2="passed")
    text = submitted(course, FakeJudge(_1_1_1=TaskState.PASSED, _1_1_2=TaskState.WRONG))
    assert "What the grader will see in src/tiny_llm (isolation: bubblewrap):" in text
    assert line(text, "1.1.1") == "✓ passed 10/10 1.1.1 Area"
    assert line(text, "1.1.2") == "✗ wrong 0/5 1.1.2 Perimeter (passed in your last run)"
    assert "10 of 15 points in 1 day\n" in text
    assert "Nothing written: 1.2–2.1\n" in text
    assert text.endswith(
        f"Hand in: {course.root / 'submission.zip'} ({len((course.root / 'submission.zip').read_bytes()):,} bytes)\n"
    )


def test_a_task_that_failed_before_is_no_surprise(course: Course) -> None:
    record(course, _1_1_1="wrong")
    judge = FakeJudge(_1_1_1=TaskState.WRONG, _1_1_2=TaskState.CRASHED)
    text = submitted(course, judge)
    assert line(text, "1.1.1") == "✗ wrong 0/10 1.1.1 Area"
    assert line(text, "1.1.2") == "! crashed 0/5 1.1.2 Perimeter"


def test_a_forbidden_call_earns_nothing_though_the_tests_pass(course: Course) -> None:
    judge = FakeJudge(_1_1_2=TaskState.PASSED)
    judge.extra = [Result("x", "1.1.1", "", TaskState.PASSED, shortcuts=("math.prod",))]
    text = submitted(course, judge)
    assert line(text, "1.1.1") == "✓ passed 0/10 1.1.1 Area (calls math.prod, which the task forbids)"
    assert "5 of 15 points" in text


def test_a_task_without_any_result_is_unknown(course: Course) -> None:
    text = submitted(course, FakeJudge(_1_1_2=TaskState.PASSED))
    assert line(text, "1.1.1") == "? unknown 0/10 1.1.1 Area (its tests gave no result)"


def test_a_task_that_reaches_anothers_stub_says_whose(course: Course) -> None:
    judge = FakeJudge(_1_1_2=TaskState.PASSED)
    judge.extra = [Result("x", "1.1.1", "", TaskState.NOT_STARTED, needs="1.2.1 A circle")]
    assert line(submitted(course, judge), "1.1.1").endswith("1.1.1 Area (needs 1.2.1 A circle)")


@pytest.mark.parametrize("judged", [True, False])
def test_stubs_that_are_left_are_counted(course: Course, judged: bool) -> None:
    solve(course, "1.1.1")
    change(
        course,
        'raise NotImplementedError("Week 1 Day 2 Task 1: A circle")\n\n    def',
        "return 3.0\n\n    def",
    )
    judge = FakeJudge(_1_1_1=TaskState.PASSED, _1_1_2=TaskState.NOT_STARTED, _1_2_1=TaskState.NOT_STARTED)
    text = submitted(course, judge if judged else None)
    assert line(text, "1.1.2").endswith("not started 0/5 1.1.2 Perimeter (a stub)")
    assert line(text, "1.2.1").endswith("not started 0/20 1.2.1 A circle (1 of 2 functions are stubs)")
    assert "of 35 points in 2 days\n" in text
    assert "Nothing written: 2.1\n" in text


def test_a_task_of_several_functions_may_be_all_stubs(course: Course) -> None:
    path = course.lessons / "week_1" / "day_1" / "lesson.toml"
    both = '["shapes.py::perimeter", "shapes.py::square"]'
    write(path, path.read_text(encoding="utf-8").replace('["shapes.py::perimeter"]', both))
    solve(course, "1.1.1")
    assert line(submitted(course), "1.1.2").endswith("1.1.2 Perimeter (all stubs)")


def test_a_function_that_is_gone_counts_as_a_stub(course: Course) -> None:
    solve(course, "1.1", "2.1")
    change(course, "def total(last: int) -> int:", "def summed(last: int) -> int:", "counting.py")
    assert line(submitted(course), "2.1.2").endswith("2.1.2 A sum (a stub)")


def test_a_task_that_was_never_tested_is_unknown(course: Course) -> None:
    assert line(submitted(course), "1.1.1") == "? unknown 0/10 1.1.1 Area (not tested yet)"


def test_a_record_without_a_time_counts_as_old(course: Course) -> None:
    record(course, _1_1_1="passed")
    path = course.state / "progress.json"
    path.write_text(path.read_text(encoding="utf-8").replace("2023-11-14T", "once upon "), encoding="utf-8")
    assert "your files have changed since" in line(submitted(course), "1.1.1")


def test_a_file_that_is_not_python_is_named_with_its_line_and_handed_in(course: Course) -> None:
    record(course, _1_1_1="passed")
    change(course, "def area(size: Size) -> float:", "def area(size: Size) -> float")
    text = submitted(course)
    number = learner_text(course, "shapes.py").split("def area")[0].count("\n") + 1
    assert f"src/tiny_llm/shapes.py:{number}: syntax error" in text
    assert line(text, "1.1.1") == "? unknown 0/10 1.1.1 Area (shapes.py can't be read)"
    assert contents(course.root / "submission.zip")["src/tiny_llm/shapes.py"].decode() == learner_text(
        course, "shapes.py"
    )


def test_a_file_that_is_not_utf_8_is_named(course: Course) -> None:
    (course.starter() / "shapes.py").write_bytes(b'x = "\xff"\n')
    assert "src/tiny_llm/shapes.py is not UTF-8 text" in submitted(course)


def test_given_files_that_changed_or_are_gone_are_named_and_stay_here(course: Course) -> None:
    for file in ("given.py", "gone.py", "same.py", "windows.py"):
        write_solution(course, file, "x = 1\n\n")
    write_package(course, "tiny_llm", ("1.1",))
    write(course.starter() / "given.py", "x = 2\n")
    write(course.starter() / "windows.py", "x = 1\r\n\r\n")
    (course.starter() / "gone.py").unlink()
    text = " ".join(submitted(course).split())
    assert "don't count, and the grader takes the course's: given.py, gone.py Hand in" in text
    assert "src/tiny_llm/given.py" not in contents(course.root / "submission.zip")


def test_files_that_the_course_does_not_have_are_named(course: Course) -> None:
    for number in range(7):
        write(course.starter() / "own" / f"file_{number}.py", "")
    write(course.starter() / "notes.txt", "")
    text = " ".join(submitted(course).split())
    assert (
        "not files of the course, so not handed in; code that imports them will fail: own/file_0.py, " in text
    )
    assert "own/file_4.py and 2 more Hand in" in text


def test_a_missing_file_is_named_and_left_out(course: Course) -> None:
    (course.starter() / "counting.py").unlink()
    text = submitted(course)
    assert "src/tiny_llm: missing, so the grader takes the stubs: counting.py" in text
    assert list(contents(course.root / "submission.zip")) == ["src/tiny_llm/shapes.py", "submission.json"]


def test_where_all_is_well_no_obstacle_is_named(course: Course) -> None:
    text = submitted(course)
    for word in ("missing", "don't count", "not files of the course", "syntax"):
        assert word not in text


def test_a_terminal_without_unicode_gets_plain_signs(course: Course) -> None:
    record(course, _1_1_1="passed")
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    hand_in(course, course.root / "submission.zip", Console(file=screen, width=100), None)
    screen.flush()
    text = screen.buffer.getvalue().decode("ascii")
    assert "+ passed" in text
    assert "? unknown" in text
