"""Where there is no isolation: the grader refuses, or goes on with limits only and says so everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from class_folders import COUNTING, as_folder
from confinement import CLOSED, usable
from courses import make_course, solve
from fake_judges import by_stubs
from parsed_page import Page
from sample_marks import REFUSAL, marks
from submitting import FakeJudge, submitted

from coursekit.backends import Backend
from coursekit.cli import REFUSED, Command, execute
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.task_state import TaskState
from grading.judging import isolation_here, judge
from grading.marks import Marks
from grading.reports.book import Book
from grading.reports.class_pages import class_html, class_markdown
from grading.reports.learner_pages import learner_html
from grading.running.asking import Asked, run_grade
from grading.sandbox import choosing
from grading.sandbox.isolation import Isolation

BARE = "limits only"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.delenv("TINY_LLM_SEED", raising=False)
    return make_course(tmp_path / "course")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return as_folder(tmp_path / "class", {"ann/counting.py": COUNTING, "bob/counting.py": b""})


@pytest.fixture
def _no_isolation(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(choosing, "ISOLATIONS", ())
    isolation_here.cache_clear()
    yield
    isolation_here.cache_clear()


def grade(course: Course, folder: Path, without: bool) -> list[Marks]:
    found: list[Marks] = []

    def write(marks: Sequence[Marks], out: Path) -> None:
        found.extend(marks)

    run_grade(course, Asked(folder, seed="hush", jobs=1, without_isolation=without), by_stubs, write)
    return found


def test_marks_say_that_there_were_only_limits_and_so_does_the_end_of_the_run(
    course: Course, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert {each.isolation for each in grade(course, folder, without=True)} == {BARE}
    told = capfd.readouterr().err
    assert "graded without isolation, with limits only: 2 of 2" in told
    assert "a run without --without-isolation grades them again" in told
    grade(course, folder.rename(folder.with_name("other")), without=False)
    assert "without isolation" not in capfd.readouterr().err


def test_marks_that_were_earned_without_isolation_hold_only_where_that_is_allowed(
    course: Course, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first = grade(course, folder, without=True)
    assert grade(course, folder, without=True) == first
    assert "2 as before" in capfd.readouterr().out
    second = grade(course, folder, without=False)
    assert "2 graded" in capfd.readouterr().out
    assert {each.isolation for each in second} == {"nothing"}
    assert grade(course, folder, without=True) == second  # what was earned with isolation holds in any case
    assert "2 as before" in capfd.readouterr().out


@pytest.mark.usefixtures("_no_isolation")
def test_the_judge_runs_the_tests_with_limits_only_where_it_may(course: Course) -> None:
    solve(course, "1.1")
    lessons = [load_manifest(course).lesson("1.1")]
    folder = course.starter().parent
    with pytest.raises(
        CourseError, match=r"there is no isolation .* --without-isolation grades all the same"
    ):
        judge(course, folder, lessons, "", Backend.TORCH)
    judged = judge(course, folder, lessons, "", Backend.TORCH, without_isolation=True)
    assert judged.isolation == BARE
    assert {name: task.state for name, task in judged.report.tasks.items()} == {
        "1.1.1": TaskState.PASSED,
        "1.1.2": TaskState.PASSED,
    }


@pytest.mark.usefixtures("_no_isolation")
@pytest.mark.parametrize("kind", CLOSED)
def test_the_judge_runs_the_tests_in_each_isolation(
    kind: type[Isolation], course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = usable(kind).name
    monkeypatch.setattr(choosing, "ISOLATIONS", (kind,))
    solve(course, "1.1.1")
    lessons = [load_manifest(course).lesson("1.1")]
    judged = judge(course, course.starter().parent, lessons, "", Backend.TORCH)
    assert judged.isolation == name
    assert [task.state for task in judged.report.tasks.values()] == [TaskState.PASSED, TaskState.NOT_STARTED]


@pytest.mark.usefixtures("_no_isolation")
def test_where_there_are_no_limits_either_the_option_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(CourseError, match="Windows has no limits") as caught:
        isolation_here(without=True)
    assert "--without-isolation" not in str(caught.value)


@pytest.mark.usefixtures("_no_isolation")
def test_the_command_refuses_at_once_and_writes_nothing(
    course: Course, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TINY_LLM_ROOT", str(course.root))
    commands = {"grade": Command("grading.command:grade", "")}
    arguments = ["grade", str(folder), "--seed", "hush"]
    assert execute(commands, arguments) == REFUSED
    assert "--without-isolation grades all the same" in " ".join(capfd.readouterr().err.split())
    assert not folder.with_name("class-grades").exists()
    assert execute(commands, [*arguments, "--dry-run"]) == 0


def test_the_class_page_warns_and_counts_each_isolation() -> None:
    given = [marks(name="Ada", isolation=BARE), marks(name="Bea"), marks(name="Cleo")]
    refused = marks(name="Dan", isolation="", refusal=REFUSAL)
    for page in (Page(class_html([*given, refused], "x")).text, class_markdown(given, "x").decode()):
        assert "Graded without isolation: 1 of 3" in page
    assert "Isolation: sandlock (2), limits only (1)" in Page(class_html([*given, refused], "x")).text
    assert "- isolation: sandlock (2)\n- isolation: limits only (1)\n" in class_markdown(given, "x").decode()


def test_the_class_page_has_no_warning_where_all_were_shut_in_or_none_was_graded() -> None:
    for given in ([marks()], [marks(refusal=REFUSAL, isolation="")], []):
        for page in (Page(class_html(given, "x")).text, class_markdown(given, "x").decode()):
            assert "Graded without isolation" not in page


def test_the_learners_page_names_the_limits() -> None:
    assert (
        "Isolation while grading: limits only." in Page(learner_html(marks(isolation=BARE), Book(), "x")).text
    )


def test_submit_goes_on_with_limits_only_and_says_so(course: Course) -> None:
    solve(course, "1.1")
    judge = FakeJudge(_1_1_1=TaskState.PASSED, _1_1_2=TaskState.PASSED)
    judge.isolation = BARE
    text = " ".join(submitted(course, judge).split())
    assert judge.without == [True]
    assert "(isolation: none here, limits only; where code is shut in, what reaches outside fails):" in text


def test_marks_know_whether_there_was_isolation() -> None:
    assert marks(isolation=BARE).without_isolation
    assert not replace(marks(), isolation="").without_isolation
