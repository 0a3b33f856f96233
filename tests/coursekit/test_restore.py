"""Restore lists the copies and brings files back, after copying the present ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from courses import SHAPES, learner_text, make_course, solve, write

from coursekit.errors import CourseError
from coursekit.learner.catch_up import catch_up
from coursekit.learner.copies import list_copies
from coursekit.learner.reset import reset
from coursekit.learner.restore import restore
from coursekit.learner.state import State
from coursekit.paths import Course

MINE = SHAPES + "# mine\r\n"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    course = make_course(tmp_path)
    solve(course, "1.1", "1.2", "2.1")
    write(course.starter() / "shapes.py", MINE)
    return course


def test_without_copies_the_list_says_where_they_come_from(course, capsys):
    restore()
    assert "There are no copies yet: reset and catch-up make them" in capsys.readouterr().out


def test_the_list_has_numbers_the_newest_first_with_what_they_were_made_for(course, capsys):
    reset("1.1.1")
    reset("2.1")
    capsys.readouterr()
    restore()
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert first.split()[0] == "1"
    assert "before reset Day 2.1" in first
    assert "src/tiny_llm/counting.py" in first
    assert "before reset Week 1 Day 1 Task 1" in second


def test_a_number_or_a_folders_name_brings_the_files_back(course, capsys):
    for name in ("1", "folder"):
        reset("1.1")
        assert learner_text(course, "shapes.py") != MINE
        restore(list_copies(course)[0].folder.name if name == "folder" else name)
        assert learner_text(course, "shapes.py") == MINE
        assert "Restored, as of 20" in capsys.readouterr().out


def test_the_present_files_are_copied_first_so_that_a_restore_can_be_undone(course, capsys):
    reset("1.1")
    later = learner_text(course, "shapes.py") + "# written since\n"
    write(course.starter() / "shapes.py", later)
    restore("1")
    assert learner_text(course, "shapes.py") == MINE
    folder = capsys.readouterr().out.partition("as they were: pdm run restore ")[2].split()[0]
    restore(folder)
    assert learner_text(course, "shapes.py") == later


def test_one_file_of_several_can_be_chosen(course):
    reset("1.1")
    folder = list_copies(course)[0].folder
    write(folder / "src/tiny_llm/counting.py", "# another file of the copy\n")
    before = learner_text(course, "counting.py")
    restore("1", "shapes.py")
    assert learner_text(course, "shapes.py") == MINE
    assert learner_text(course, "counting.py") == before


def test_files_that_are_like_the_copies_are_left_and_not_copied_again(course, capsys):
    reset("1.1")
    restore("1")
    before = len(list_copies(course))
    restore("2")
    assert "Nothing to restore" in capsys.readouterr().out
    assert len(list_copies(course)) == before


def test_borrowed_code_comes_back_as_borrowed(course):
    reset("1.1")
    catch_up(to="1.2")
    marks = State.load(course).borrowed
    reset("1.1")
    assert State.load(course).borrowed != marks
    restore("1")
    assert State.load(course).borrowed == marks


def test_a_copy_without_a_note_can_be_restored_too(course, capsys):
    reset("1.1")
    (list_copies(course)[0].folder / "about.json").write_text("[" * 100_000, encoding="utf-8")
    restore()
    assert "src/tiny_llm/shapes.py" in capsys.readouterr().out
    restore("1")
    assert learner_text(course, "shapes.py") == MINE


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("7",), "there is no copy '7': pdm run restore lists them"),
        (("0",), "there is no copy '0'"),
        (("../..",), "there is no copy"),
        (("1", "layers.py"), "the copy has no file layers.py; it has: src/tiny_llm/shapes.py"),
    ],
)
def test_what_is_not_there_is_a_clear_error_and_changes_nothing(course, arguments, says):
    reset("1.1")
    before = learner_text(course, "shapes.py")
    with pytest.raises(CourseError) as refused:
        restore(*arguments)
    assert says in str(refused.value)
    assert learner_text(course, "shapes.py") == before
