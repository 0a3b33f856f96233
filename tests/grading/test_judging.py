"""What the judge asks pytest to do, and what it makes of the ways in which that can end."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from courses import make_course

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.interrupts import INTERRUPTED
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.running.pytest_process import INTERNAL_ERROR, TESTS_FAILED, USAGE_ERROR, Outcome
from coursekit.running.results import Report
from grading import judging
from grading.judging import Judged
from grading.sandbox.limits_only import LimitsOnly

REPORT = Report("learner", "torch", "cpu", finished=True)


class Pytest:
    """Notes what it is asked, and ends as it is told to."""

    def __init__(self) -> None:
        self.outcome = Outcome(TESTS_FAILED, REPORT, "")
        self.arguments: list[str] = []
        self.secret, self.mode = "", 0

    def __call__(self, course: Course, arguments: list[str], quiet: bool) -> Outcome:
        self.arguments = arguments
        self.secret = self.path.read_text(encoding="utf-8")
        self.mode = stat.S_IMODE(self.path.stat().st_mode)
        return self.outcome

    @property
    def path(self) -> Path:
        return Path(self.arguments[self.arguments.index("--draw") + 1])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Pytest:
    found = Pytest()
    monkeypatch.setattr(judging, "run_pytest", found)
    monkeypatch.setattr(judging, "isolation_here", lambda without: LimitsOnly())
    return found


@pytest.fixture
def judge(tmp_path: Path) -> Callable[[str], Judged]:
    course = make_course(tmp_path / "course")
    lessons = load_manifest(course).lessons
    return lambda seed: judging.judge(course, tmp_path, lessons, seed, Backend.TORCH)


def test_the_seed_is_in_a_file_for_its_owner_alone_which_is_gone_afterwards(
    asked: Pytest, judge: Callable[[str], Judged]
) -> None:
    assert judge("schlüssel") == Judged(REPORT, LimitsOnly.name)
    assert (asked.secret, asked.mode) == ("schlüssel", 0o600)
    assert not asked.path.exists()
    assert not any("schlüssel" in argument for argument in asked.arguments)


@pytest.mark.parametrize(("seed", "fixed"), [("x", True), ("", False)])
def test_without_a_seed_inputs_are_drawn_as_in_the_learners_runs(
    seed: str, fixed: bool, asked: Pytest, judge: Callable[[str], Judged]
) -> None:
    judge(seed)
    assert any(argument.startswith("--hypothesis-seed=") for argument in asked.arguments) is fixed


def test_ctrl_c_while_the_tests_run_is_no_result(asked: Pytest, judge: Callable[[str], Judged]) -> None:
    asked.outcome = Outcome(INTERRUPTED, REPORT, "")
    with pytest.raises(KeyboardInterrupt):
        judge("x")


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(INTERNAL_ERROR, REPORT, "pytest broke"),
        Outcome(USAGE_ERROR, REPORT, "no such option"),
        Outcome(TESTS_FAILED, None, "no report"),
    ],
)
def test_tests_that_could_not_be_run_say_nothing_about_the_code(
    outcome: Outcome, asked: Pytest, judge: Callable[[str], Judged]
) -> None:
    asked.outcome = outcome
    with pytest.raises(CourseError):
        judge("x")
    assert not asked.path.exists()


def test_a_file_of_tests_that_is_gone_is_named(
    asked: Pytest, judge: Callable[[str], Judged], tmp_path: Path
) -> None:
    (tmp_path / "course/tests/week_1/test_day_2.py").unlink()
    with pytest.raises(CourseError, match=r"^tests/week_1/test_day_2\.py is not there: `git restore`"):
        judge("x")
    assert asked.arguments == []
