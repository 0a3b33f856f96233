"""The grader's plugin, with a tiny course whose tests look at it from inside."""

from __future__ import annotations

from pathlib import Path

import pytest
from confinement import no_isolation
from courses import SHAPES, make_course, write

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.interrupts import INTERRUPTED
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.running.pytest_process import INTERNAL_ERROR, USAGE_ERROR, Outcome
from coursekit.running.results import Report
from coursekit.task_state import TaskState
from grading import judging
from grading.drawing import number_of
from grading.judging import judge
from grading.plugin import copy_beside
from grading.sandbox.limits_only import LimitsOnly

shut_in = pytest.mark.skipif(bool(no_isolation()), reason=no_isolation())


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path / "course")


def judged(course: Course, folder: Path, tests: str, seed: str = "", code: str = SHAPES) -> Report:
    """The report on Day 1.1, whose tests are these, for the reference's code or other."""
    write(course.tests / "week_1" / "test_day_1.py", tests)
    write(folder / "tiny_llm" / "__init__.py", "")
    write(folder / "tiny_llm" / "shapes.py", code)
    return judge(course, folder, [load_manifest(course).lesson("1.1")], seed, Backend.TORCH).report


def states(report: Report) -> list[TaskState]:
    return [report.tasks[name].state for name in ("1.1.1", "1.1.2")]


def words(report: Report, task: str = "1.1.1") -> str:
    failure = report.tasks[task].first_failure
    assert failure is not None
    return failure.message


MIXED = """
import pytest

@pytest.fixture(scope="module")
def log(lab):
    return lab.shapes.LOG

@pytest.fixture(scope="session")
def size(lab):
    return lab.shapes.Size(2, 3)

def test_task_2_first(lab, log, size):
    assert lab.shapes.perimeter(size) == 10
    log.append(2)
    assert lab.shapes.LOG == [2]

def test_task_1_first(lab, log, size):
    assert lab.shapes.area(size) == 6
    log.append(1)
    assert lab.shapes.LOG == [1]

def test_task_2_second(lab, log, size):
    assert lab.shapes.perimeter(size) == 10
    assert lab.shapes.LOG is log
    assert log == [2]

def test_task_1_second(lab, log, size):
    assert lab.shapes.area(size) == 6
    assert lab.shapes.LOG == log == [1]
"""


@shut_in
def test_the_tests_of_a_task_share_one_worker_and_what_it_made_and_those_of_two_tasks_none(course, tmp_path):
    report = judged(course, tmp_path, MIXED, code=SHAPES.replace("TURN = ", "LOG = []\nTURN = "))
    assert states(report) == [TaskState.PASSED] * 2


IMPORTS = """
def test_task_1_is_imported(lab):
    import tiny_llm.shapes
    assert tiny_llm.shapes.area(tiny_llm.shapes.Size(2, 3)) == 6

def test_task_2_is_not(lab):
    assert lab.shapes.perimeter(lab.shapes.Size(2, 3)) == 10
"""


@shut_in
def test_the_learners_code_is_never_imported_into_the_graders_process(course, tmp_path):
    report = judged(course, tmp_path, IMPORTS)
    assert report.tasks["1.1.1"].state not in (TaskState.PASSED, TaskState.NOT_STARTED)
    assert "tiny_llm is imported by the tests themselves: they must reach it through `lab`" in words(report)
    assert report.tasks["1.1.2"].state == TaskState.PASSED


DRAWN = """
import os
from pathlib import Path

import numpy as np

def test_task_1_has_the_learners_own_numbers(pytestconfig):
    assert np.random.default_rng(0).integers(1000) == 850
    assert getattr(pytestconfig.option, "hypothesis_seed", None) is None

def test_task_2_draws(pytestconfig):
    secret = Path(pytestconfig.option.draw)
    assert not os.stat(secret).st_mode & 0o077
    assert secret.read_text() == "a secret"
    assert pytestconfig.option.hypothesis_seed == "NUMBER"
"""


@shut_in
@pytest.mark.parametrize("seed", ["", "a secret"])
def test_inputs_are_drawn_anew_where_there_is_a_seed(course, tmp_path, seed):
    report = judged(course, tmp_path, DRAWN.replace("NUMBER", str(number_of("a secret"))), seed)
    assert states(report) == [
        TaskState.WRONG if seed else TaskState.PASSED,
        TaskState.PASSED if seed else TaskState.WRONG,
    ]


SETUP = """
import pytest

@pytest.fixture
def size(lab):
    return lab.shapes.Size(2, 3)

def test_task_1_has_a_fixture_that_the_code_leaves(lab, size):
    pass

def test_task_2_works(lab):
    assert lab.shapes.perimeter(lab.shapes.Size(2, 3)) == 10
"""


@shut_in
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise SystemExit", "your code ended the program"),
        ("import os; os._exit(5)", "the process in which your code runs ended itself with exit code 5"),
    ],
)
def test_a_fixture_that_the_code_leaves_says_so_and_the_next_task_goes_on(course, tmp_path, body, says):
    code = SHAPES.replace(
        "class Size(NamedTuple):", f"def Size(*sides):\n    {body}\n\n\nclass _Size(NamedTuple):"
    )
    code = code.replace("Size:", "_Size:").replace("size: Size", "size: _Size")
    report = judged(course, tmp_path, SETUP, code=code)
    assert says in words(report)
    assert report.tasks["1.1.2"].first_failure is not None
    assert says in words(report, "1.1.2")


STUCK = """
from pathlib import Path

import pytest

@pytest.fixture
def size(lab):
    size = lab.shapes.Size(2, 3)
    yield size
    try:
        size.width
    except Exception as error:
        Path("FILE").write_text(type(error).__name__)

def test_task_1_does_not_end(lab, size):
    lab.shapes.area(size)
"""


@shut_in
def test_a_worker_in_the_middle_of_a_call_that_took_too_long_is_ended_before_the_teardown(course, tmp_path):
    lesson = course.lessons / "week_1" / "day_1" / "lesson.toml"
    write(lesson, lesson.read_text(encoding="utf-8").replace("points = ", "seconds = 1\npoints = "))
    code = SHAPES.replace("return size.width * size.height", "while True: pass")
    report = judged(course, tmp_path, STUCK.replace("FILE", str(tmp_path / "found")), code=code)
    assert "ran longer than" in words(report)
    assert (tmp_path / "found").read_text() == "Gone"


def test_only_what_runs_beside_the_code_is_copied(tmp_path):
    for name in (
        "week_1/beside_a.py",
        "week_1/test_day_1.py",
        "week_2/answers.py",
        "beside_b.py",
        "other/beside_c.py",
    ):
        write(tmp_path / "tests" / name, name)
    copy_beside(tmp_path / "tests", tmp_path / "beside")
    found = [path.relative_to(tmp_path / "beside").as_posix() for path in (tmp_path / "beside").rglob("*.py")]
    assert found == ["week_1/beside_a.py"]


def judge_as(course: Course, folder: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome) -> None:
    """Judge, where pytest's process ends like that."""
    monkeypatch.setattr(judging, "isolation_here", lambda without: LimitsOnly())
    monkeypatch.setattr(judging, "run_pytest", lambda *arguments, **options: outcome)
    judge(course, folder, [load_manifest(course).lesson("1.1")], "", Backend.TORCH)


REPORT = Report("learner", "torch", "cpu", finished=True)


@pytest.mark.parametrize("report", [None, REPORT])
def test_a_run_that_was_interrupted_is_an_interrupt(course, tmp_path, monkeypatch, report):
    with pytest.raises(KeyboardInterrupt):
        judge_as(course, tmp_path, monkeypatch, Outcome(INTERRUPTED, report, "ERROR: no"))


@pytest.mark.parametrize(("code", "report"), [(1, None), (INTERNAL_ERROR, REPORT), (USAGE_ERROR, REPORT)])
def test_tests_that_could_not_be_run_say_nothing_about_the_code(course, tmp_path, monkeypatch, code, report):
    with pytest.raises(CourseError, match=r"^no such option$"):
        judge_as(course, tmp_path, monkeypatch, Outcome(code, report, "ERROR: no such option"))


def test_a_day_whose_tests_are_not_there_is_named(course, tmp_path, monkeypatch):
    (course.tests / "week_1" / "test_day_1.py").unlink()
    with pytest.raises(
        CourseError, match=r"^tests/week_1/test_day_1\.py is not there: `git restore` brings it back$"
    ):
        judge_as(course, tmp_path, monkeypatch, Outcome(0, REPORT, ""))
