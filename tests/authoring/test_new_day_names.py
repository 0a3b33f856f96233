"""`pdm run new-day`: which numbers, titles and modules a new day may have."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest
from courses import write
from gate_courses import run
from new_days import LONG, ROOT, everything, make_small, summary

from authoring.gates.agreement import agreement
from authoring.new_day import new_day
from authoring.new_day.naming import LONGEST_TITLE, MARKS, check_module, module_of, read_title
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import ROOT_VARIABLE, Course


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return make_small(tmp_path)


@pytest.mark.parametrize(
    "number",
    ["1.2", "1.4", "2.3", "3.2", "4.1", "0.1", "2.0", "3", "3.1.1", "03.1", "three", "", "-3.1", "3.²"],
)
def test_a_number_that_is_taken_or_leaves_a_gap_is_refused_with_those_that_can_be(
    course: Course, number: str
) -> None:
    before = everything(course)
    with pytest.raises(CourseError, match=r"a new one can be: 1\.3, 2\.2, 3\.1$"):
        new_day(number, "Beams")
    assert everything(course) == before


def test_a_taken_number_is_said_to_be_taken(course: Course) -> None:
    with pytest.raises(CourseError, match=r"^there is a Day 1\.2 already"):
        new_day("1.2", "Beams")


@pytest.mark.parametrize("char", list('"\\\n\r\t\x00\u2028[]{}<>`*_#~^|$@;\u200b\u202e😀'))
def test_a_title_that_toml_or_markdown_would_read_otherwise_is_refused(course: Course, char: str) -> None:
    before = everything(course)
    with pytest.raises(CourseError, match="the title holds"):
        new_day("2.2", f"Beams {char} search")
    assert everything(course) == before


@pytest.mark.parametrize(
    ("title", "says"), [("", "empty"), ("  ", "empty"), ("?!", "empty"), (LONG + "x", "61")]
)
def test_an_empty_or_endless_title_is_refused(course: Course, title: str, says: str) -> None:
    with pytest.raises(CourseError, match=says):
        new_day("2.2", title)


def test_a_title_of_all_the_marks_that_it_may_hold_fits_every_file(course: Course) -> None:
    title = f"Ünï 4{MARKS}ß"
    shutil.copy(ROOT / "pyproject.toml", course.root)
    new_day("2.2", title, module="beams")
    assert load_manifest(course).lesson("2.2").title == title
    lesson = tomllib.loads((course.lessons / "week_2/day_2/lesson.toml").read_text(encoding="utf-8"))
    assert lesson["title"] == title
    assert [
        p for p in run(agreement, course).problems if "2.2" in p or ("day_2.md" in p and "week_2" in p)
    ] == []


def test_a_title_is_kept_with_single_spaces_and_composed_letters() -> None:
    assert len(LONG) == LONGEST_TITLE
    assert read_title(LONG) == LONG
    assert read_title("  Beam   search ") == "Beam search"
    assert read_title("Nai\u0308ve") == "Na\u00efve"


@pytest.mark.parametrize(
    ("title", "module"),
    [
        ("Beam search, twice", "beam_search_twice"),
        ("Naïve – and fast!", "naive_and_fast"),
        ("KV cache", "kv_cache"),
        ("x" * 45, "x" * 40),
        ("A" * 39 + " word", "a" * 39),
        ("Поиск", ""),
    ],
)
def test_the_module_is_named_after_the_title(title: str, module: str) -> None:
    assert module_of(title) == module


@pytest.mark.parametrize(
    "name",
    ["", "2x", "Beams", "beam-search", "a__b", "_a", "a_", "x" * 41, "../x", "a.b", "naïve", "a\n"],
)
def test_a_name_that_no_module_has_is_refused(course: Course, name: str) -> None:
    with pytest.raises(CourseError, match=r"can't be a module's name.*--module"):
        new_day("2.2", "Beams", module=name)


@pytest.mark.parametrize("name", ["class", "lambda", "con", "lpt1", "array", "numpy", "backend", "package"])
def test_a_name_that_means_something_else_is_refused(course: Course, name: str) -> None:
    with pytest.raises(CourseError, match=r"which means something else.*--module"):
        check_module(course, name)


def test_a_title_without_english_letters_asks_for_a_module(course: Course) -> None:
    with pytest.raises(CourseError, match="--module"):
        new_day("2.2", "Поиск")
    new_day("2.2", "Поиск", module="beams")
    assert "[2.2 Поиск](week_2/day_2.md)" in summary(course)


@pytest.mark.parametrize("taken", ["tiny_llm/beams.py", "tiny_llm/beams/x.py", "tiny_llm_mlx/beams.py"])
def test_a_module_that_is_there_is_refused(course: Course, taken: str) -> None:
    write(course.root / "solutions" / taken, "")
    before = everything(course)
    with pytest.raises(CourseError, match=r"there is solutions/.*beams.* already: choose one with --module"):
        new_day("2.2", "Beams")
    assert everything(course) == before
