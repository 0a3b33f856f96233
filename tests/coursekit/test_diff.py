"""The reference is shown beside the learner's code when the task has passed, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import learner_text, make_course, solve, write

from coursekit.errors import CourseError
from coursekit.learner.catch_up import catch_up
from coursekit.learner.diff import diff
from coursekit.learner.state import State
from coursekit.paths import Course


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    course = make_course(tmp_path)
    solve(course, "1.1", "1.2")
    text = learner_text(course, "shapes.py")
    write(course.starter() / "shapes.py", text.replace("TURN / 2 * square(self.radius)", "3 * self.radius"))
    return course


def record(course: Course, task: str, state: str) -> None:
    with State.changing(course) as records:
        records.record("tiny_llm", task, state, 0)


def test_the_functions_that_differ_are_shown_line_by_line(course, capsys):
    record(course, "1.2.1", "passed")
    diff("1.2.1")
    out = capsys.readouterr().out
    assert "shapes.py: Circle.area" in out
    assert "-        return 3 * self.radius\n+        return TURN / 2 * square(self.radius)\n" in out
    assert '         """The area, in square metres."""\n' in out
    assert "shapes.py: Circle.__call__\n  the same as the reference\n" in out


def test_on_a_wide_terminal_they_stand_side_by_side(course, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    record(course, "1.2.1", "passed")
    diff("1.2.1")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "3 * self.radius" in line]
    assert "return TURN / 2 * square(self.radius)" in line


@pytest.mark.parametrize("state", [None, "wrong", "crashed", "not started"])
def test_before_the_task_has_passed_it_says_when_it_opens_and_shows_nothing(course, capsys, state):
    if state:
        record(course, "1.2.1", state)
    with pytest.raises(CourseError) as refused:
        diff("1.2.1")
    assert "when the task has passed (pdm run test 1.2.1)" in str(refused.value)
    assert "pdm run hint 1.2.1" in str(refused.value)
    assert "TURN" not in capsys.readouterr().out


def test_a_stub_is_not_compared_whatever_the_record_says(course):
    record(course, "2.1.1", "passed")
    with pytest.raises(CourseError, match=r"2\.1\.1 Counting up is not started"):
        diff("2.1.1")


def test_borrowed_code_is_not_compared_with_itself(course):
    untouched = make_course(course.root)
    catch_up(to="1.2")
    record(untouched, "1.1.1", "passed")
    with pytest.raises(CourseError, match="is borrowed from the reference"):
        diff("1.1.1")
