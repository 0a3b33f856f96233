"""A day whose tasks ask for other functions on the MLX track: everything that asks a day for its tasks follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import LESSONS, make_course, write, write_solution
from runs import run_plugin

from coursekit.backends import Backend
from coursekit.editing.assembly import generate
from coursekit.editing.transplant import Learner
from coursekit.errors import CourseError
from coursekit.learner.hint import hint
from coursekit.learner.standing import Standing, Survey
from coursekit.learner.state import State
from coursekit.manifest import FunctionRef, ManifestError, load_manifest
from coursekit.paths import ROOT_VARIABLE, Course
from coursekit.tracks import covered, covers, name_days

MLX = "tiny_llm_mlx"
DAY = "week_2/day_1"
APART = '''"""Numbers all at once."""


def count_all(last: int) -> list[int]:
    """1 … last."""
    return list(range(1, last + 1))
'''
OWN = """mlx = ["folder/counting_apart.py::count_all"]
mlx_hints = ["A list.", "A range.", "`list(range(…))`"]
"""
TEST = """def test_task_1_counts_all(lab):
    assert lab.folder.counting_apart.count_all(3) == [1, 2, 3]
"""
FIRST_HINTS = 'hints = ["A generator.", "A loop that yields.", "`while number <= last: …`"]\n'


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """The tiny course, whose Day 2.1 has one task on the MLX track, with a function of its own."""
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    course = make_course(tmp_path)
    write_solution(course, "folder/__init__.py", "", MLX)
    write_solution(course, "folder/counting_apart.py", APART, MLX)
    write(course.tests / "week_2" / "test_day_1_mlx.py", TEST)
    claim(course, OWN)
    for file, content in generate(course, MLX, load_manifest(course)).items():
        write(course.starter(MLX) / file, content.decode("utf-8"))
    return course


def claim(course: Course, lines: str) -> None:
    """Give Day 2.1's first task these lines."""
    write(course.lessons / DAY / "lesson.toml", LESSONS[DAY].replace(FIRST_HINTS, FIRST_HINTS + lines))


def test_the_day_has_only_the_tasks_that_the_track_asks_for(course):
    torch, mlx = (load_manifest(course, package).lesson("2.1") for package in ("tiny_llm", MLX))
    assert [task.name for task in torch.tasks] == ["2.1.1", "2.1.2"]
    assert [task.name for task in mlx.tasks] == ["2.1.1"]
    assert mlx.tasks[0].implements == (FunctionRef("folder/counting_apart.py", "count_all"),)
    assert mlx.tasks[0].hints[0] == "A list."
    assert (torch.points, mlx.points) == (25, 10)
    assert (torch.test_file, mlx.test_file) == ("week_2/test_day_1.py", "week_2/test_day_1_mlx.py")


def test_each_track_can_be_had_from_the_other(course):
    whole, mlx = load_manifest(course), load_manifest(course, MLX)
    assert mlx.on("tiny_llm") == whole
    assert whole.on(MLX) == mlx == mlx.on(MLX)


def test_a_day_without_functions_of_its_own_is_the_same_on_both(course):
    assert load_manifest(course, MLX).lesson("1.1") == load_manifest(course).lesson("1.1")


def test_the_track_covers_the_day(course):
    lesson = load_manifest(course).lesson("2.1")
    assert covers(course, MLX, lesson)
    assert name_days(covered(course, MLX, load_manifest(course)), load_manifest(course)) == "2.1"
    (course.solution(MLX) / "folder" / "counting_apart.py").unlink()
    covers.__globals__["_defined"].cache_clear()
    assert not covers(course, MLX, lesson)


def test_the_starter_has_the_stub_of_the_tracks_own_function(course):
    stub = (course.starter(MLX) / "folder" / "counting_apart.py").read_text(encoding="utf-8")
    assert 'raise NotImplementedError("Week 2 Day 1 Task 1: Counting up")' in stub


def test_a_learner_borrows_and_loses_the_tracks_own_function(course):
    learner = Learner(course, MLX, load_manifest(course))
    (ref,) = load_manifest(course, MLX).task("2.1.1").implements
    assert learner.has_stub(ref)
    (content,) = learner.put_reference([ref]).contents.values()
    assert b"pdm run reset 2.1.1" in content
    assert b"return list(range(1, last + 1))" in content


def test_progress_counts_the_tasks_of_the_track(course):
    (day,) = (
        day
        for day in Survey(course, load_manifest(course), State.load(course), MLX).days
        if day.lesson.name == "2.1"
    )
    assert {task.name: standing for task, standing in day.tasks.items()} == {"2.1.1": Standing.NOT_STARTED}
    assert day.points == 10


def test_hints_are_those_of_the_track(course, capsys):
    hint("2.1.1", level=1)
    assert "A generator." in capsys.readouterr().out
    hint("2.1.1", level=1, backend=Backend.MLX)
    assert "A list." in capsys.readouterr().out
    with pytest.raises(CourseError, match=r"Day 2\.1 has no task 2"):
        hint("2.1.2", backend=Backend.MLX)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('mlx = ["folder/counting_apart.py::count_all"]\n', "mlx_hints is missing"),
        ('mlx_hints = ["a", "b", "c"]\n', "mlx is missing"),
        (OWN.replace("count_all", "count_none"), "defines no such function"),
        (OWN.replace("counting_apart", "elsewhere"), "there is no file solutions/tiny_llm_mlx/folder/elsewhere.py"),
        (OWN.replace('"A range.", ', ""), "has 2 mlx_hints: a task has exactly 3"),
        (OWN.replace('"]\nmlx_h', '", "folder/counting_apart.py::count_all"]\nmlx_h'), "is claimed already at"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_tracks_own_functions_is_named(course, lines, says):
    claim(course, lines)
    with pytest.raises(ManifestError, match=says):
        load_manifest(course)


@pytest.mark.parametrize(
    ("backend", "own", "other"),
    [("torch", "test_day_1.py", "test_day_1_mlx.py"), ("mlx", "test_day_1_mlx.py", "test_day_1.py")],
)
def test_each_track_runs_its_own_tests_and_says_why_it_skips_the_others(course, backend, own, other):
    if backend == "mlx":
        pytest.importorskip("mlx.core", reason="MLX is not installed")
    _, found = run_plugin(course, "--impl", "solution", "--backend", backend, "tests/week_2")
    assert {task["state"] for task in found["tasks"].values()} == {"passed"}
    ran = [test["id"] for task in found["tasks"].values() for test in task["tests"]]
    assert all(f"/{own}::" in test for test in ran)
    skipped = [test for test in found["others"] if f"/{other}::" in test["id"]]
    assert skipped
    assert all("of the other track" in test["message"] for test in skipped)
