"""A notebook's session: whose code runs, files that change, tasks that are missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from courses import make_course, solve
from notebook_cells import run_cells

from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from coursekit.running.stubs import Stub
from notebooks import session
from notebooks.session import WHO, missing_sentence
from notebooks.settings import IMPL

TOTAL = "from notebooks import lab\nprint('total', lab.counting.total(4))"
MISSING = (
    "Task 2.1.2 (A sum) is still missing. It stands in src/tiny_llm/counting.py. "
    "%impl solution shows what it will do."
)
EDIT = (
    "import os, pathlib\n"
    "file = pathlib.Path(os.environ['TINY_LLM_ROOT']) / 'src/tiny_llm/counting.py'\n"
    "_ = file.write_text(file.read_text().replace('return sum(count_up(last))', 'return -last'))"
)


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


def test_the_learners_code_runs_unless_the_environment_says_otherwise(course):
    solve(course, "2.1")
    printed = run_cells(course, TOTAL)
    assert printed.splitlines() == [WHO[Impl.LEARNER], "total 10"]


def test_the_environment_can_ask_for_the_reference(course):
    printed = run_cells(course, TOTAL, **{IMPL: "solution"})
    assert printed.splitlines() == [WHO[Impl.SOLUTION], "total 10"]


def test_an_environment_that_names_neither_is_refused(course):
    assert f"{IMPL} is 'mine': write learner or solution" in run_cells(course, **{IMPL: "mine"})


def test_a_stub_is_told_in_one_line_and_no_traceback(course):
    printed = run_cells(course, TOTAL)
    assert printed.splitlines()[1:] == [MISSING]


def test_impl_changes_whose_code_runs_both_ways(course):
    printed = run_cells(course, TOTAL, "%impl solution", TOTAL, "%impl learner", TOTAL)
    assert printed.splitlines()[1:] == [
        MISSING,
        WHO[Impl.SOLUTION],
        "total 10",
        WHO[Impl.LEARNER],
        MISSING,
    ]


def test_impl_of_anything_else_says_what_there_is_and_changes_nothing(course):
    solve(course, "2.1")
    printed = run_cells(course, "%impl reference", "%impl", TOTAL)
    assert printed.splitlines()[1:] == ["Write %impl learner or %impl solution."] * 2 + ["total 10"]


def test_a_file_that_changes_is_read_anew_before_the_next_cell(course):
    solve(course, "2.1")
    printed = run_cells(course, TOTAL, EDIT, TOTAL, TOTAL)
    assert printed.splitlines()[1:] == [
        "total 10",
        "Read anew: counting.py. What was made before still runs the old code.",
        "total -4",
        "total -4",
    ]


def test_all_files_that_changed_came_or_went_are_named(course):
    more = "\nfile.with_name('zeta.py').touch()\nfile.with_name('shapes.py').unlink()"
    printed = run_cells(course, EDIT.replace("-last", "0") + more, "1")
    assert "Read anew: counting.py, shapes.py, zeta.py. What" in printed


def test_other_errors_keep_their_traceback(course):
    printed = run_cells(course, "def broken():\n    return 1 / 0\nbroken()")
    assert "ZeroDivisionError" in printed
    assert "broken()" in printed


def test_a_stub_behind_another_error_is_told_as_well(course):
    cell = (
        "from notebooks import lab\n"
        "try:\n    lab.counting.total(4)\n"
        "except NotImplementedError as error:\n    raise RuntimeError('no') from error"
    )
    assert run_cells(course, cell).splitlines()[1:] == [MISSING]


def test_a_stub_of_a_task_that_is_no_more_is_told_without_its_file(course):
    sentence = missing_sentence(load_manifest(course), Stub(9, 9, 9, "Gone"))
    assert sentence == "Task 9.9.9 (Gone) is still missing. %impl solution shows what it will do."


def test_a_task_of_several_files_names_each_once(course):
    refs = [SimpleNamespace(file=name) for name in ("d.py", "b.py", "a.py", "c.py", "b.py")]
    manifest: Any = SimpleNamespace(task=lambda name: SimpleNamespace(implements=refs))
    sentence = missing_sentence(manifest, Stub(1, 2, 3, "Two"))
    assert sentence.startswith(
        "Task 1.2.3 (Two) is still missing. It stands in src/tiny_llm/a.py and b.py and c.py and d.py. "
    )


def test_without_the_extension_there_is_no_session(monkeypatch):
    monkeypatch.setattr(session, "_current", None)
    with pytest.raises(CourseError, match="run `%load_ext notebooks` first"):
        session.current()
