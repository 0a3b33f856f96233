"""`pdm run new-day`: the skeleton passes the gates as it is, on a copy of the real course."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from confinement import no_isolation
from gate_courses import run
from new_days import LONG, ROOT
from runs import course_command

from authoring.book.blocks import block_problems
from authoring.gates.agreement import agreement
from authoring.gates.gate import Gate
from authoring.gates.grading import grading
from authoring.gates.mutants import mutants
from authoring.gates.notebooks import notebooks
from authoring.gates.order import order
from authoring.gates.starter import starter as starter_gate
from authoring.new_day import new_day
from authoring.new_day.naming import LONGEST_MODULE
from coursekit.paths import ROOT_VARIABLE, Course

LEFT_OUT = (".venv", ".git", ".course", "build", "__pycache__", ".*_cache", ".hypothesis")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Course:
    """A copy of the real course with three new days: two at the end of Week 4, and one in a new week."""
    root = tmp_path_factory.mktemp("whole") / "course"
    shutil.copytree(ROOT, root, ignore=shutil.ignore_patterns(*LEFT_OUT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT_VARIABLE, str(root))
        new_day("4.8", LONG, module="x" * LONGEST_MODULE)
        new_day("4.9", "Rows, 8 & 10", module="rows10")
        new_day("5.1", "Running means")
    return Course(root)


@pytest.mark.parametrize("gate", [agreement, starter_gate, order], ids=lambda gate: gate.__name__)
def test_a_new_day_passes_the_gates_as_it_is(whole: Course, gate: Gate) -> None:
    assert run(gate, whole, "5.1").problems == []


def test_every_mutant_of_a_new_day_is_found(whole: Course) -> None:
    findings = run(mutants, whole, "5.1")
    assert findings.problems == []
    assert findings.looked_at == "6 of 6 mutants found, 2 tasks"


def test_what_is_written_is_in_ruffs_order_and_layout_whatever_its_names(whole: Course) -> None:
    written = [
        *(
            whole.solution() / name
            for name in ("x" * LONGEST_MODULE + ".py", "rows10.py", "running_means.py")
        ),
        *(whole.tests / name for name in ("week_4/test_day_8.py", "week_4/test_day_9.py", "week_5")),
        whole.root / "src" / "coursekit" / "lab_modules.py",
    ]
    for tool in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *tool, "--no-cache", *map(str, written)],
            cwd=whole.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_the_block_of_the_chapter_prints_what_it_shows(whole: Course) -> None:
    assert block_problems(whole, [whole.book / "src/week_5/day_1.md"]) == {}


def test_the_reference_passes_where_the_tests_are_run_as_a_learner_runs_them(whole: Course) -> None:
    done = course_command(whole, "test", "4.8", "--impl", "solution")
    assert done.returncode == 0, done.stdout
    assert "20 of 20 points" in done.stdout
    assert "Done: Day 4.8" in done.stdout


def test_its_notebook_gives_what_the_skeleton_says(whole: Course) -> None:
    found = run(notebooks, whole, "5.1")
    assert (found.problems, found.looked_at) == ([], "1 notebook")


@pytest.mark.skipif(bool(no_isolation()), reason=no_isolation())
def test_its_tests_also_pass_where_the_grader_runs_them(whole: Course) -> None:
    found = run(grading, whole, "5.1")
    assert found.problems == []
    assert found.looked_at.startswith("2 days graded")


def test_the_learners_commands_know_the_new_day(whole: Course) -> None:
    assert "Hint 2 of 3" in course_command(whole, "hint", "5.1.2", "--level", "2").stdout
    stubs = course_command(whole, "test", "5.1")
    assert stubs.returncode == 1
    assert "Next to write: 5.1.1 The running mean" in stubs.stdout
    mine = whole.starter() / "running_means.py"
    stub = mine.read_bytes()
    mine.write_bytes((whole.solution() / "running_means.py").read_bytes())
    done = course_command(whole, "test", "5.1")
    assert done.returncode == 0
    assert "There is no further day in the course yet." in done.stdout
    assert "5.1  Running means" in (board := course_command(whole, "progress").stdout)
    assert "20 / 20" in board
    assert course_command(whole, "reset", "5.1").returncode == 0
    assert mine.read_bytes() == stub
