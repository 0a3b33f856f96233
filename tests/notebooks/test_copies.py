"""The learner's copies: made once, never overwritten, without the answers."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from courses import make_course, write

from coursekit.errors import CourseError
from coursekit.manifest import Lesson, load_manifest
from coursekit.paths import Course
from notebooks.copies import notebook_of, prepare, without_outputs


@pytest.fixture
def course(tmp_path: Path) -> Course:
    course = make_course(tmp_path)
    write_notebook(course, "first")
    return course


def lesson_of(course: Course) -> Lesson:
    return load_manifest(course).lesson("1.2")


def notebook(source: str) -> dict[str, Any]:
    output = {"output_type": "stream", "name": "stdout", "text": "42"}
    return {
        "cells": [
            {"cell_type": "markdown", "source": "# Größe", "metadata": {}},
            {"cell_type": "code", "source": "print(42)", "outputs": [output], "execution_count": 1},
        ],
        "metadata": {"tiny_llm": {"source": source}, "kernelspec": {"name": "python3"}},
        "nbformat": 4,
    }


def write_notebook(course: Course, source: str) -> None:
    write(notebook_of(lesson_of(course)), json.dumps(notebook(source)))


def test_the_copy_has_the_cells_and_no_outputs(course):
    copy, said = prepare(course, lesson_of(course), fresh=False)
    assert (copy.relative_to(course.root).as_posix(), said) == ("play/week_1_day_2.ipynb", "a fresh copy")
    content = json.loads(copy.read_text(encoding="utf-8"))
    assert content == without_outputs(notebook("first"))
    assert [cell.get("outputs") for cell in content["cells"]] == [None, []]
    assert content["cells"][1]["execution_count"] is None
    assert "Größe" in copy.read_text(encoding="utf-8")
    assert copy.read_bytes().endswith(b"}\n")


def test_what_the_learner_has_changed_stays(course):
    copy, _ = prepare(course, lesson_of(course), fresh=False)
    mine = {**notebook("first"), "nbformat": 5}
    copy.write_text(json.dumps(mine))
    assert prepare(course, lesson_of(course), fresh=False) == (copy, "as you left it")
    assert json.loads(copy.read_text()) == mine


def test_a_course_that_has_changed_since_is_told_and_changes_nothing(course):
    copy, _ = prepare(course, lesson_of(course), fresh=False)
    before = copy.read_bytes()
    write_notebook(course, "second")
    _, said = prepare(course, lesson_of(course), fresh=False)
    assert said == "as you left it; the course's has changed since: `pdm run lab 1.2 --fresh`"
    assert copy.read_bytes() == before


def test_a_fresh_copy_keeps_the_ones_before_under_other_names(course):
    copy, _ = prepare(course, lesson_of(course), fresh=False)
    for number, text in ((1, "mine"), (2, "mine again")):
        copy.write_text(text)
        _, said = prepare(course, lesson_of(course), fresh=True)
        kept = copy.with_name(f"week_1_day_2-{number}.ipynb")
        assert said == f"a fresh copy; yours is now play/{kept.name}"
        assert kept.read_text() == text
        assert json.loads(copy.read_text())["nbformat"] == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_fresh_copy_that_cannot_be_written_leaves_the_one_that_is_there(course, monkeypatch, error):
    copy, _ = prepare(course, lesson_of(course), fresh=False)
    copy.write_text("mine")

    def stopped(source: Path, target: Path) -> None:
        raise error

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises((error, CourseError)):
        prepare(course, lesson_of(course), fresh=True)
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]
    assert copy.read_text() == "mine"


def test_a_copy_that_cannot_be_moved_away_is_told(course, monkeypatch):
    copy, _ = prepare(course, lesson_of(course), fresh=False)

    def refused(source: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(
        CourseError, match=r"^play/week_1_day_2\.ipynb can't be kept under another name: Perm"
    ):
        prepare(course, lesson_of(course), fresh=True)
    assert copy.is_file()


def test_a_file_without_leave_to_read_is_told(course, monkeypatch):
    lesson = lesson_of(course)

    def refused(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(CourseError, match=r"notebook\.ipynb can't be read"):
        prepare(course, lesson, fresh=False)


def test_fresh_without_a_copy_makes_one(course):
    _, said = prepare(course, lesson_of(course), fresh=True)
    assert said == "a fresh copy"


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", '{"cells": []}', '{"metadata": {}}', '{"cells": [], "metadata": null}'),
        '{"cells": [], "metadata": {"tiny_llm": []}}',
    ],
)
def test_a_copy_that_cannot_be_read_is_told_and_kept(course, content):
    copy, _ = prepare(course, lesson_of(course), fresh=False)
    copy.write_text(content)
    with pytest.raises(CourseError, match=r"^play/week_1_day_2\.ipynb can't be read .* --fresh makes"):
        prepare(course, lesson_of(course), fresh=False)
    assert copy.read_text() == content
    prepare(course, lesson_of(course), fresh=True)


def test_a_copy_without_marks_of_its_origin_counts_as_changed(course):
    copy, _ = prepare(course, lesson_of(course), fresh=False)
    copy.write_text(json.dumps({"cells": [], "metadata": {}}))
    _, said = prepare(course, lesson_of(course), fresh=False)
    assert "has changed since" in said


@pytest.mark.parametrize("folder", [False, True])
def test_a_day_without_a_notebook_is_refused(course, folder):
    notebook_of(lesson_of(course)).unlink()
    if folder:
        notebook_of(lesson_of(course)).mkdir()
    with pytest.raises(CourseError, match=r"Day 1.2 has no notebook: lessons/.*notebook.ipynb is not there"):
        prepare(course, lesson_of(course), fresh=False)
    assert not (course.root / "play").exists()


def test_a_notebook_of_the_course_that_is_broken_says_how_to_get_it_back(course):
    write(notebook_of(lesson_of(course)), "{")
    with pytest.raises(
        CourseError, match=r"`git restore lessons/week_1/day_2/notebook.ipynb` brings it back"
    ):
        prepare(course, lesson_of(course), fresh=False)
