"""The course on one screen: what passed, what began, what is borrowed, what comes next."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from courses import COUNTING, SHAPES, learner_text, make_course, solve, write
from rich.console import Console

from coursekit.backends import Backend
from coursekit.learner.catch_up import catch_up
from coursekit.learner.progress import progress, show
from coursekit.learner.standing import Standing, Survey
from coursekit.learner.state import State
from coursekit.manifest import load_manifest
from coursekit.paths import Course


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path))
    return make_course(tmp_path)


def survey(course: Course, package: str = "tiny_llm") -> Survey:
    return Survey(course, load_manifest(course), State.load(course), package)


def standings(course: Course, package: str = "tiny_llm") -> dict[str, Standing]:
    return {
        task.name: standing for day in survey(course, package).days for task, standing in day.tasks.items()
    }


def record(course: Course, package: str = "tiny_llm", **states: str) -> None:
    """Note results: `_1_1_1="passed"`."""
    state = State.load(course)
    for name, result in states.items():
        task = load_manifest(course).task(name.strip("_").replace("_", "."))
        state.record(package, task.name, result, task.points if result == "passed" else 0)
    state.save()


def screen(course: Course, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(survey(course), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def line_with(text: str, words: str) -> str:
    (line,) = [line for line in text.splitlines() if words in line]
    return " ".join(line.split())


def test_an_untouched_course_is_not_started(course):
    assert set(standings(course).values()) == {Standing.NOT_STARTED}
    text = screen(course)
    assert "0 of 60 points" in text
    assert line_with(text, "Rectangles") == "1.1 Rectangles · · 0 / 15"
    assert "Next:   Week 1 Day 1 Task 1, Area" in text
    assert "pdm run test 1.1" in text
    assert "Read:   pdm run book --open 1.1 (book/src/week_1/day_1.md)" in text


def test_each_standing_has_its_symbol_and_points(course):
    catch_up(to="1.2")
    solve(course, "1.1", "1.2", "2.1.1")
    record(course, _1_2_1="passed", _2_1_1="wrong")
    text = screen(course)
    assert line_with(text, "Rectangles") == "1.1 Rectangles ↩ ↩ 0 / 15"
    assert line_with(text, "Circles") == "1.2 Circles ✓ 20 / 20"
    assert line_with(text, "2.1  Counting") == "2.1 Counting ◐ · 0 / 25"
    assert line_with(text, "Week 1 ") == "Week 1 20 / 35"
    assert "20 of 60 points" in text
    assert "earns no points" in text
    assert "Next:   Week 2 Day 1 Task 1, Counting up" in text


def test_written_code_that_was_never_tested_has_begun(course):
    solve(course, "1.1.1")
    assert standings(course)["1.1.1"] is Standing.BEGUN


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        ("passed", Standing.PASSED),
        ("wrong", Standing.BEGUN),
        ("crashed", Standing.BEGUN),
        ("not started", Standing.BEGUN),
        ("skipped", Standing.SKIPPED),
    ],
)
def test_written_code_stands_as_its_last_run_says(course, state, standing):
    solve(course, "1.1.1")
    record(course, _1_1_1=state)
    assert standings(course)["1.1.1"] is standing


def test_a_stub_is_not_started_whatever_the_record_says(course):
    record(course, _1_1_1="passed")
    assert standings(course)["1.1.1"] is Standing.NOT_STARTED
    assert survey(course).earned == 0


def test_a_task_with_one_stub_left_has_begun(course):
    record(course, _1_2_1="passed")
    solved = SHAPES.replace(
        "return TURN / 2 * square(self.radius)", 'raise NotImplementedError("Week 1 Day 2 Task 1: A circle")'
    )
    write(course.starter() / "shapes.py", solved)
    assert standings(course)["1.2.1"] is Standing.BEGUN


def test_borrowed_code_that_is_rewritten_is_the_learners_own(course):
    catch_up(to="1.2")
    record(course, _1_1_1="passed", _1_1_2="passed")
    text = learner_text(course, "shapes.py").replace("size.width * size.height", "size.height * size.width")
    write(course.starter() / "shapes.py", text)
    assert standings(course)["1.1.1"] is Standing.PASSED
    assert standings(course)["1.1.2"] is Standing.BORROWED
    assert survey(course).earned == 10


def test_deleted_functions_and_files_are_not_started(course):
    solve(course, "1.1", "2.1")
    write(
        course.starter() / "shapes.py",
        learner_text(course, "shapes.py").replace("def area(size", "def aria(size"),
    )
    (course.starter() / "counting.py").unlink()
    found = standings(course)
    assert found["1.1.1"] is found["2.1.1"] is found["2.1.2"] is Standing.NOT_STARTED


def test_a_file_with_a_syntax_error_is_named_and_the_rest_is_shown(course):
    solve(course, "1.1", "2.1")
    record(course, _1_1_1="passed", _2_1_1="passed")
    write(course.starter() / "shapes.py", "def area(:\n")
    text = screen(course)
    assert "src/tiny_llm/shapes.py:1: syntax error" in text
    assert standings(course)["1.1.1"] is Standing.BEGUN
    assert standings(course)["2.1.1"] is Standing.PASSED


def test_a_finished_course_says_so(course):
    solve(course, "1.1", "1.2", "2.1")
    record(course, _1_1_1="passed", _1_1_2="passed", _1_2_1="passed", _2_1_1="passed", _2_1_2="passed")
    text = screen(course)
    assert "60 of 60 points" in text
    assert "Every task is done" in text
    assert "░" not in text


def test_after_catching_up_the_next_task_is_one_of_that_day(course):
    lesson = course.lessons / "week_2" / "day_1" / "lesson.toml"
    write(lesson, 'needs = ["1.1"]\n' + lesson.read_text(encoding="utf-8"))
    catch_up(to="2.1")
    assert "Next:   Week 2 Day 1 Task 1, Counting up" in screen(course)
    write(course.starter() / "counting.py", COUNTING)
    record(course, _2_1_1="passed", _2_1_2="passed")
    assert "Next:   Week 1 Day 2 Task 1, A circle" in screen(course)


def test_where_the_rest_is_borrowed_the_course_is_not_called_done(course):
    catch_up(to="2.1")
    text = learner_text(course, "shapes.py").replace("size.width * size.height", "size.height * size.width")
    write(course.starter() / "shapes.py", text)
    write(course.starter() / "counting.py", COUNTING)
    record(course, _1_1_1="passed", _1_1_2="passed", _1_2_1="passed", _2_1_1="passed", _2_1_2="passed")
    text = screen(course)
    assert "35 of 60 points" in text
    assert "Every task is done or borrowed; code worth 25 points is borrowed" in text
    assert "the first of it in Week 1 Day 1 Task 2." in text
    assert "Next:   pdm run reset 1.1 --borrowed" in text
    assert "smoke" not in text


def test_the_second_package_shows_only_what_it_has(course):
    solve(course, "2.1", package="tiny_llm_mlx")
    record(course, "tiny_llm_mlx", _2_1_1="passed")
    assert list(standings(course, "tiny_llm_mlx")) == ["2.1.1"]
    assert standings(course, "tiny_llm_mlx")["2.1.1"] is Standing.PASSED
    assert standings(course)["2.1.1"] is Standing.NOT_STARTED


def test_the_package_tested_last_is_shown_unless_one_is_named(course, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    record(course, "tiny_llm_mlx", _2_1_1="wrong")
    progress()
    assert "--backend mlx" in capsys.readouterr().out
    progress(backend=Backend.TORCH)
    assert "--backend" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("width", "beside"), [(40, False), (80, False), (119, False), (120, True), (200, True)]
)
def test_weeks_stand_side_by_side_where_there_is_room(course, width, beside):
    text = screen(course, width)
    assert max(len(line.rstrip()) for line in text.splitlines() if "pdm run" not in line) <= width
    assert any("Week 1 " in line and "Week 2 " in line for line in text.splitlines()) == beside


def test_a_terminal_without_unicode_gets_ascii(course):
    solve(course, "1.1.1")
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=80, highlight=False)
    show(survey(course), console)
    console.file.flush()
    text = console.file.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert line_with(text, "Rectangles") == "1.1 Rectangles o . 0 / 15"


def test_a_course_without_lessons_is_shown_empty(course):
    for path in course.lessons.rglob("lesson.toml"):
        path.unlink()
    assert "0 of 0 points" in screen(course)
