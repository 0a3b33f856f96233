"""Catching up borrows what earlier days lack, and nothing more."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from courses import COUNTING, SHAPES, learner_text, make_course, write

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.learner.catch_up import catch_up
from coursekit.learner.reset import reset
from coursekit.learner.state import State
from coursekit.lessons.outline import stubbed
from coursekit.paths import Course

OWN_AREA = "def area(size: Size) -> float:\n    w, h = size\n    return w * h"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    return make_course(tmp_path)


def borrowed(course: Course, package: str = "tiny_llm") -> set[str]:
    return set(State.load(course).borrowed.get(package, {}))


def cut(text: str, start: str, end: str) -> str:
    """The text without what stands from `start` up to `end`."""
    return text[: text.index(start)] + text[text.index(end) :]


def without_marks(text: str) -> str:
    """The text without the comments that say what is borrowed."""
    return "".join(line for line in text.splitlines(keepends=True) if "# Borrowed from" not in line)


def need(course: Course, day: str, names: str) -> None:
    """Let a day's file say which days it needs."""
    path = course.lessons / f"week_{day[0]}" / f"day_{day[2]}" / "lesson.toml"
    write(path, f"needs = {names}\n" + path.read_text(encoding="utf-8"))


def run(course: Course, file: str) -> dict[str, object]:
    """Execute one of the learner's files."""
    return runpy.run_path(str(course.starter() / file))


def test_only_earlier_days_are_filled_in(course, capsys):
    catch_up(to="1.2")
    assert set(stubbed(learner_text(course, "shapes.py"))) == {"Circle.area", "Circle.__call__"}
    assert set(stubbed(learner_text(course, "counting.py"))) == {"count_up", "total"}
    assert borrowed(course) == {"shapes.py::area", "shapes.py::perimeter"}
    out = capsys.readouterr().out
    assert "src/tiny_llm/shapes.py\n  1.1.1  Area" in out
    assert "pdm run test 1.2" in out


def test_filling_in_every_stub_gives_the_reference_with_a_comment_in_each_function(course):
    catch_up(to="2.1")
    text = learner_text(course, "shapes.py")
    assert without_marks(text) == SHAPES
    assert (
        '    """The area of a rectangle, in square metres."""\n'
        "    # Borrowed from the reference: pdm run reset 1.1.1 puts the stub back.\n"
        "    # width times height\n" in text
    )
    assert text.count("# Borrowed from the reference: pdm run reset 1.2.1 puts the stub back.\n") == 2


def test_only_the_days_that_the_day_needs_are_borrowed_and_the_others_are_named(course, capsys):
    need(course, "2.1", '["1.1"]')
    catch_up(to="2.1")
    assert set(stubbed(learner_text(course, "shapes.py"))) == {"Circle.area", "Circle.__call__"}
    out = capsys.readouterr().out
    assert "Still stubs:             1.2, which Day 2.1 can do without (--all borrows them)" in out
    catch_up(to="2.1")
    assert "Nothing to borrow: the days that 2.1 needs have no stubs left." in capsys.readouterr().out


def test_all_earlier_days_are_borrowed_on_request(course, capsys):
    need(course, "2.1", '["1.1"]')
    catch_up(to="2.1", everything=True)
    assert stubbed(learner_text(course, "shapes.py")) == {}
    assert "Still stubs" not in capsys.readouterr().out


def test_what_the_learner_wrote_stays(course):
    text = learner_text(course, "shapes.py")
    start, end = text.index("def area"), text.index("\n\n\ndef perimeter")
    write(course.starter() / "shapes.py", text[:start] + OWN_AREA + text[end:])
    catch_up(to="2.1")
    after = learner_text(course, "shapes.py")
    assert OWN_AREA in after
    assert stubbed(after) == {}
    assert "shapes.py::area" not in borrowed(course)


def test_the_rest_of_the_file_stays_byte_for_byte(course):
    text = learner_text(course, "shapes.py").replace("\n", "\r\n").rstrip()
    mine = "\r\n\r\n\tif False : pass".replace("\t", "") + "   # odd"
    text = "\ufeff# notes  \r\n" + text + mine
    write(course.starter() / "shapes.py", text)
    catch_up(to="2.1")
    assert (
        without_marks(learner_text(course, "shapes.py"))
        == "\ufeff# notes  \r\n" + SHAPES.rstrip().replace("\n", "\r\n") + mine
    )


def test_copies_of_the_files_are_kept(course):
    before = learner_text(course, "shapes.py")
    catch_up(to="1.2")
    (copy,) = (course.state / "backups").rglob("*.py")
    assert copy.read_bytes().decode() == before


def test_a_second_time_there_is_nothing_to_borrow(course, capsys):
    catch_up(to="2.1")
    before = learner_text(course, "shapes.py")
    capsys.readouterr()
    catch_up(to="2.1")
    assert "Nothing to borrow" in capsys.readouterr().out
    assert learner_text(course, "shapes.py") == before
    assert borrowed(course) == {
        f"shapes.py::{name}" for name in ("area", "perimeter", "Circle.area", "Circle.__call__")
    }


def test_before_the_first_day_there_is_nothing_to_borrow(course, capsys):
    catch_up(to="1.1")
    assert "Nothing to borrow" in capsys.readouterr().out
    assert not course.state.exists()


def test_wrong_code_stays_unless_asked(course):
    wrong = SHAPES.replace("return size.width * size.height", "return size.width")
    write(course.starter() / "shapes.py", wrong)
    state = State.load(course)
    state.record("tiny_llm", "1.1.1", "wrong", 0)
    state.record("tiny_llm", "1.1.2", "passed", 5)
    state.save()
    catch_up(to="1.2")
    assert learner_text(course, "shapes.py") == wrong
    catch_up(to="1.2", failing=True)
    assert without_marks(learner_text(course, "shapes.py")) == SHAPES
    assert borrowed(course) == {"shapes.py::area"}
    assert State.load(course).result("tiny_llm", "1.1.1") is None
    assert State.load(course).result("tiny_llm", "1.1.2") is not None


def test_reset_gives_a_borrowed_stub_back_and_ends_the_loan(course):
    untouched = learner_text(course, "shapes.py")
    catch_up(to="1.2")
    reset(week=1, day=1)
    assert learner_text(course, "shapes.py") == untouched
    assert borrowed(course) == set()


def test_deleted_imports_and_constants_are_added_and_told(course, capsys):
    text = learner_text(course, "shapes.py").replace("import math\n", "").replace("TURN = 2 * math.pi\n", "")
    text = cut(text, "def square", "    return x * x").replace("    return x * x\n", "")
    write(course.starter() / "shapes.py", text)
    catch_up(to="2.1")
    out = capsys.readouterr().out
    for name in ("math", "TURN", "square"):
        assert f"Was missing, was added:  src/tiny_llm/shapes.py: {name}\n" in out
    circle = run(course, "shapes.py")["Circle"]
    assert circle(1.0).area == pytest.approx(3.14159, abs=1e-5)  # type: ignore[operator]
    assert circle(2.0)(0.0) == (2.0, 0.0)  # type: ignore[operator]


def test_a_deleted_class_comes_back_with_its_given_methods(course):
    write(course.starter() / "shapes.py", cut(learner_text(course, "shapes.py"), "# Circles", "def square"))
    catch_up(to="2.1")
    circle = run(course, "shapes.py")["Circle"]
    assert circle(1.0).area == pytest.approx(3.14159, abs=1e-5)  # type: ignore[operator]


def test_a_renamed_method_is_added_beside_the_learners(course):
    text = learner_text(course, "shapes.py").replace("def __call__(", "def call(")
    write(course.starter() / "shapes.py", text)
    catch_up(to="2.1")
    circle = run(course, "shapes.py")["Circle"]
    assert circle(2.0)(0.0) == (2.0, 0.0)  # type: ignore[operator]
    assert "def call(" in learner_text(course, "shapes.py")


def test_a_name_that_means_something_else_is_refused(course):
    text = learner_text(course, "shapes.py")
    text = cut(text, "def area", "def perimeter").replace(
        "import math\n", "import math\nfrom other import area\n"
    )
    write(course.starter() / "shapes.py", text)
    with pytest.raises(
        CourseError, match=r"src/tiny_llm/shapes\.py:6: area is not what the course means by it"
    ):
        catch_up(to="1.2")
    assert learner_text(course, "shapes.py") == text


def test_one_unreadable_file_means_that_no_file_changes(course):
    lesson = course.lessons / "week_1/day_1/lesson.toml"
    write(lesson, lesson.read_text().replace("shapes.py::perimeter", "counting.py::total"))
    day = course.lessons / "week_2/day_1/lesson.toml"
    write(day, day.read_text().replace("counting.py::total", "shapes.py::perimeter"))
    before = learner_text(course, "shapes.py")
    write(course.starter() / "counting.py", "def total(:\n")
    with pytest.raises(CourseError, match=r"src/tiny_llm/counting\.py:1: syntax error"):
        catch_up(to="1.2")
    assert learner_text(course, "shapes.py") == before
    assert borrowed(course) == set()


def test_the_second_package_borrows_from_its_own_reference(course):
    lesson = course.lessons / "week_1/day_1/lesson.toml"
    write(lesson, lesson.read_text().replace("shapes.py::area", "counting.py::count_up"))
    day = course.lessons / "week_2/day_1/lesson.toml"
    write(day, day.read_text().replace("counting.py::count_up", "shapes.py::area"))
    catch_up(to="1.2", backend=Backend.MLX)
    assert "yield from range(1, last + 1)" in learner_text(course, "counting.py", "tiny_llm_mlx")
    assert borrowed(course, "tiny_llm_mlx") == {"counting.py::count_up"}
    assert learner_text(course, "counting.py") != COUNTING


def test_an_unknown_day_is_a_clear_error(course):
    with pytest.raises(CourseError, match=r"there is no Day 1\.8; there are: 1\.1, 1\.2, 2\.1"):
        catch_up(to="1.8")


def test_a_missing_file_is_made_from_the_starter(course):
    (course.starter() / "shapes.py").unlink()
    catch_up(to="1.2")
    assert set(stubbed(learner_text(course, "shapes.py"))) == {"Circle.area", "Circle.__call__"}
