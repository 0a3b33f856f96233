"""`pdm run notebooks`: which days, how many at a time, what it prints and how it exits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from courses import make_course, write
from notebook_texts import AREA, check, read, write_text

from authoring.notebooks import command
from authoring.notebooks.making import as_bytes, make_notebook
from coursekit.errors import CourseError
from coursekit.paths import ROOT_VARIABLE, Course
from notebooks.copies import notebook_of


class Runs:
    """In the place of what makes or checks: keeps what it was asked for, and finds what it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str], int]] = []
        self.problems: list[str] = []

    def called(self, name: str) -> Any:
        def call(course: Course, lessons: Any, console: Any, at_once: int) -> list[str]:
            self.asked.append((name, [lesson.name for lesson in lessons], at_once))
            return self.problems

        return call


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return make_course(tmp_path)


@pytest.fixture
def runs(course: Course, monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(command, "make_notebooks", runs.called("make"))
    monkeypatch.setattr(command, "check_notebooks", runs.called("check"))
    monkeypatch.setattr(command, "cores", lambda: 6)
    return runs


def test_without_days_all_are_made_one_at_a_time(runs, capsys):
    command.notebooks()
    assert runs.asked == [("make", ["1.1", "1.2", "2.1"], 1)]
    assert capsys.readouterr().out == "3 notebooks made\n"


def test_the_check_runs_as_many_at_a_time_as_there_are_cores(runs, capsys):
    command.notebooks(["1.2"], check=True)
    assert runs.asked == [("check", ["1.2"], 6)]
    assert capsys.readouterr().out == "1 notebook in order\n"


@pytest.mark.parametrize("check", [False, True])
def test_the_number_of_jobs_can_be_given(runs, check):
    command.notebooks(["1.2"], check=check, jobs=2)
    assert runs.asked[0][2] == 2


def test_a_day_that_is_named_twice_is_made_once(runs):
    command.notebooks(["2.1", "1.1", "2.1"])
    assert runs.asked[0][1] == ["2.1", "1.1"]


@pytest.mark.parametrize("check", [False, True])
def test_problems_are_printed_as_they_are_and_the_exit_code_is_1(runs, capsys, monkeypatch, check):
    monkeypatch.setenv("COLUMNS", "20")
    runs.problems = ["Day 1.1: cell-3 (x[/b]) is one of many words", "another"]
    with pytest.raises(typer.Exit) as left:
        command.notebooks(check=check)
    assert left.value.exit_code == 1
    assert capsys.readouterr().out.splitlines() == [f"problem: {problem}" for problem in runs.problems]


def test_a_day_that_is_not_there_is_refused(runs):
    with pytest.raises(CourseError, match=r"7\.7"):
        command.notebooks(["1.1", "7.7"])
    assert runs.asked == []


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "3", "{}", '{"nbformat": 9}', "\udcff"),
        '{"cells": [], "nbformat": 4, "nbformat_minor": 5}',
        '{"cells": null, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
    ],
)
def test_a_committed_file_that_is_no_notebook_is_named_with_what_makes_it_anew(course, content):
    lesson = write_text(course, AREA)
    write(notebook_of(lesson), "")
    notebook_of(lesson).write_bytes(content.encode("utf-8", "surrogateescape"))
    (problem,) = check(course, lesson)
    assert problem.startswith("Day 1.1: lessons/week_1/day_1/notebook.ipynb can't be read: ")
    assert problem.endswith("; `pdm run notebooks 1.1` makes it from notebook.py")
    assert "\n" not in problem


def test_notebooks_that_are_just_as_large_as_they_may_be_pass(course, monkeypatch):
    lesson = write_text(course, AREA)
    write(notebook_of(lesson), as_bytes(make_notebook(lesson)).decode("utf-8"))
    size = notebook_of(lesson).stat().st_size
    monkeypatch.setattr(command, "execute_all", lambda course, books, *rest: {"1.1": read(lesson)})
    monkeypatch.setattr(command, "LARGEST_OF_ALL", size)
    monkeypatch.setattr(command, "LARGEST", size)
    assert check(course, lesson) == []
    assert command.make_notebooks(course, [lesson], command.Console(quiet=True), 1) == []
    monkeypatch.setattr(command, "LARGEST_OF_ALL", size - 1)
    monkeypatch.setattr(command, "LARGEST", size - 1)
    assert [problem.split(" has")[0].split(" have")[0] for problem in check(course, lesson)] == [
        "Day 1.1: the notebook",
        "all notebooks",
    ]


def test_a_notebook_that_is_not_its_texts_is_not_run(course, monkeypatch):
    lesson, other = write_text(course, AREA), write_text(course, AREA, day="1.2")
    for each in (lesson, other):
        write(notebook_of(each), as_bytes(make_notebook(each)).decode("utf-8"))
    write_text(course, AREA, AREA)
    asked: list[str] = []

    def execute(course: Course, books: Any, short: bool, at_once: int, one_done: Any) -> Any:
        asked.extend(books)
        assert short
        return {"1.2": CourseError("it fails")}

    monkeypatch.setattr(command, "execute_all", execute)
    first, second = check(course, lesson, other)
    assert first.startswith("Day 1.1: the notebook isn't its text's")
    assert second == "Day 1.2: it fails"
    assert asked == ["1.2"]
