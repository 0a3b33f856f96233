"""The notebooks from their texts: made, run on the reference, compared with those that are committed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from courses import make_course, write
from gate_courses import run
from notebook_texts import AREA, MEASURED, check, lesson_of, make, read, write_text

from authoring.gates.notebooks import notebooks as gate
from authoring.notebooks import command
from authoring.notebooks.making import as_bytes, make_notebook, text_of
from coursekit.manifest import load_manifest
from coursekit.paths import ROOT_VARIABLE, Course
from notebooks.copies import notebook_of


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return make_course(tmp_path)


def test_a_notebook_is_made_with_the_outputs_of_the_reference_and_passes_the_check(course):
    lesson = write_text(course, AREA, MEASURED)
    assert make(course, lesson) == []
    book = read(lesson)
    nbformat.validate(book)
    assert [cell["cell_type"] for cell in book.cells] == ["markdown", "code", "code", "code", "code"]
    assert book.cells[1]["source"] == "%load_ext notebooks"
    assert book.cells[3]["outputs"] == [{"name": "stdout", "output_type": "stream", "text": "area 6\n"}]
    assert book.cells[4]["metadata"] == {"tags": ["measured"]}
    assert "version" not in book.metadata["language_info"]
    assert check(course, lesson) == []  # though the time is another one


def test_the_same_text_gives_the_same_notebook(course):
    lesson = write_text(course, AREA)
    assert as_bytes(make_notebook(lesson)) == as_bytes(make_notebook(lesson))
    make(course, lesson)
    first = notebook_of(lesson).read_bytes()
    make(course, lesson)
    assert notebook_of(lesson).read_bytes() == first


def test_text_that_has_changed_is_found_and_the_command_named(course):
    lesson = write_text(course, AREA)
    make(course, lesson)
    write_text(course, AREA + "# a word more\n")
    assert check(course, lesson) == [
        "Day 1.1: the notebook isn't its text's; `pdm run notebooks 1.1` makes it from notebook.py"
    ]


def test_a_reference_that_says_something_else_is_found(course):
    lesson = write_text(course, AREA)
    make(course, lesson)
    path = course.solution() / "shapes.py"
    path.write_text(path.read_text().replace("size.width * size.height", "size.width + size.height"))
    (problem,) = check(course, lesson)
    assert problem.startswith("Day 1.1: cell-3 (print('area', ")
    assert problem.endswith("committed: area 6\nnow:       area 5")


def test_a_day_without_text_or_notebook_is_found(course):
    lesson = write_text(course, AREA)
    assert check(course, lesson) == [
        "Day 1.1: lessons/week_1/day_1/notebook.ipynb is not there; `pdm run notebooks 1.1` makes it from notebook.py"
    ]
    text_of(lesson).unlink()
    (problem,) = check(course, lesson)
    assert "notebook.py" in problem


def test_a_committed_file_that_is_no_notebook_is_found(course):
    lesson = write_text(course, AREA)
    write(notebook_of(lesson), "{")
    (problem,) = check(course, lesson)
    assert "notebook.ipynb can't be read" in problem


def test_a_cell_that_fails_is_told_and_nothing_is_written_for_its_day_alone(course):
    bad, good = write_text(course, "1 / 0\n"), write_text(course, AREA, day="1.2")
    (problem,) = make(course, bad, good)
    assert problem.startswith("Day 1.1: ")
    assert "ZeroDivisionError" in problem
    assert not notebook_of(bad).exists()
    assert notebook_of(good).is_file()


def test_a_notebook_that_writes_to_standard_error_is_not_taken(course):
    lesson = write_text(course, "import sys\nprint('a warning', file=sys.stderr)\n")
    (problem,) = make(course, lesson)
    assert problem.endswith("writes to standard error: a warning")
    assert not notebook_of(lesson).exists()


def test_a_notebook_that_is_too_large_is_not_taken_and_not_passed(course, monkeypatch):
    lesson = write_text(course, "print('x' * 5000)\n")
    assert make(course, lesson) == []
    monkeypatch.setattr(command, "LARGEST", 4000)
    (problem,) = check(course, lesson)
    assert "bytes, more than 4,000" in problem
    notebook_of(lesson).unlink()
    (problem,) = make(course, lesson)
    assert "more than 4,000" in problem
    assert not notebook_of(lesson).exists()


def test_all_notebooks_together_have_a_limit(course, monkeypatch):
    lessons = [write_text(course, AREA), write_text(course, AREA, day="1.2")]
    make(course, *lessons)
    monkeypatch.setattr(command, "LARGEST_OF_ALL", 2000)
    (problem,) = check(course, *lessons)
    assert problem.startswith("all notebooks have ")


def test_the_checks_run_is_short_and_the_made_one_is_not(course):
    lesson = write_text(course, "from notebooks import settings\nprint(settings.short(), settings.plain())\n")
    make(course, lesson)
    assert read(lesson).cells[3]["outputs"][0]["text"] == "False True\n"
    (problem,) = check(course, lesson)
    assert problem.endswith("committed: False True\nnow:       True True")


def test_the_gate_looks_at_every_day_or_the_one_that_is_named(course):
    for lesson in load_manifest(course).lessons:
        write_text(course, AREA, day=lesson.name)
    make(course, *load_manifest(course).lessons)
    found = run(gate, course)
    assert (found.looked_at, found.problems) == ("3 notebooks", [])
    notebook_of(lesson_of(course, "2.1")).unlink()
    assert run(gate, course, day="1.2").problems == []
    assert len(run(gate, course).problems) == 1
