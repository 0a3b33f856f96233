"""Notebooks are run on the reference: several at a time, and whatever stops one leaves nothing running."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from courses import make_course
from notebook_texts import AREA, make, write_text

from authoring.notebooks import executing
from authoring.notebooks.executing import execute_all
from authoring.notebooks.making import make_notebook
from coursekit.errors import CourseError
from coursekit.machine import THREAD_VARIABLES
from coursekit.paths import ROOT_VARIABLE, Course
from notebooks import settings
from notebooks.copies import notebook_of


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    return make_course(tmp_path)


def test_a_kernel_that_dies_is_told_with_its_last_words(course):
    lesson = write_text(
        course, "import os, sys\nprint('the end', file=sys.__stderr__, flush=True)\nos._exit(3)\n"
    )
    (problem,) = make(course, lesson)
    assert "the end" in problem
    assert not notebook_of(lesson).exists()


def test_several_are_run_at_the_same_time_and_each_is_told(course):
    books = {name: make_notebook(write_text(course, AREA, day=name)) for name in ("1.1", "1.2", "2.1")}
    books["1.2"].cells[3]["source"] = "1 / 0"
    done: list[int] = []
    results = execute_all(course, books, True, 2, lambda: done.append(1))
    assert len(done) == 3
    assert list(results) == ["1.1", "1.2", "2.1"]
    assert isinstance(results["1.2"], CourseError)
    assert results["2.1"].cells[3]["outputs"][0]["text"] == "area 6\n"
    assert books["2.1"].cells[3]["outputs"] == []


WAITS = "import os, pathlib, time\npathlib.Path('{file}').write_text(str(os.getpid()))\ntime.sleep(600)\n"


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX systems")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_kernels_and_changes_nothing(course, tmp_path, number, code):
    mark = tmp_path / "kernel"
    lesson = write_text(course, WAITS.format(file=mark))
    with subprocess.Popen(
        [sys.executable, "-m", "authoring", "notebooks", "1.1"],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        end = time.monotonic() + 90
        while not (mark.is_file() and mark.read_text()):
            assert time.monotonic() < end, process.communicate()
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == code
    kernel = int(mark.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)
    assert not notebook_of(lesson).exists()


def test_a_cell_that_takes_too_long_is_told_as_such(course, monkeypatch):
    monkeypatch.setattr(executing, "CELL_SECONDS", 2)
    book = make_notebook(write_text(course, "import time\ntime.sleep(600)  # here it waits\n"))
    book.cells = book.cells[3:]
    found = execute_all(course, {"1.1": book}, True, 1)["1.1"]
    assert isinstance(found, CourseError)
    assert str(found).startswith("a cell takes longer than 2 seconds:\n")
    assert str(found).endswith("# here it waits")


def test_a_kernel_that_does_not_begin_is_told_with_its_last_words(course, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "nowhere")
    (problem,) = make(course, write_text(course, AREA))
    assert problem.startswith("Day 1.1: Kernel died before")
    assert "Fatal Python error" in problem


def test_of_an_error_only_its_own_cell_is_cited_and_without_colors(course):
    lesson = write_text(course, "print('an earlier cell')\n", "1 / 0\n", "print('a later cell')\n")
    (problem,) = make(course, lesson)
    assert problem.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "cell" not in problem
    assert "\x1b" not in problem


def test_a_reference_with_a_stub_is_told_with_the_stubs_line(course):
    lesson = write_text(course, "raise NotImplementedError('Week 1 Day 1 Task 1: An area')\n")
    (problem,) = make(course, lesson)
    assert "Task 1.1.1 (An area) is still missing." in problem


def test_what_is_printed_in_pieces_is_one_output(course):
    pieces = "import sys, time\nfor _ in range(3):\n    print('a', flush=True)\n    time.sleep(0.1)\n"
    book = execute_all(course, {"1.1": make_notebook(write_text(course, pieces))}, True, 1)["1.1"]
    assert [output["text"] for output in book.cells[3]["outputs"]] == ["a\na\na\n"]


def test_a_notebook_is_run_in_a_folder_of_its_own_that_goes_away(course):
    lesson = write_text(course, "import os\nopen('made', 'w').close()\nprint(os.getcwd())\n")
    folder = execute_all(course, {"1.1": make_notebook(lesson)}, True, 1)["1.1"].cells[3]["outputs"][0][
        "text"
    ]
    assert not Path(folder.strip()).exists()
    assert course.root not in Path(folder.strip()).parents


@pytest.mark.parametrize(("at_once", "threads"), [(1, "8"), (3, "2"), (20, "1")])
def test_no_more_than_asked_for_run_at_the_same_time_and_they_share_the_cores(
    course, monkeypatch, at_once, threads
):
    running: list[int] = []
    most: list[int] = []

    async def execute(book: Any, environment: dict[str, str]) -> Any:
        assert {environment[name] for name in THREAD_VARIABLES} == {threads}
        assert environment["TRITON_INTERPRET"] == environment[settings.PLAIN] == "1"
        assert environment[settings.IMPL] == "solution"
        assert environment[ROOT_VARIABLE] == str(course.root)
        running.append(book)
        most.append(len(running))
        await asyncio.sleep(0.01)
        running.remove(book)
        return -book

    monkeypatch.setattr(executing, "_execute", execute)
    monkeypatch.setattr(executing, "cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    found = execute_all(course, {str(number): number for number in range(5)}, True, at_once)
    assert found == {str(number): -number for number in range(5)}
    assert max(most) == min(at_once, 5)
