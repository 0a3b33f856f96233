"""`pdm run submit`: what is handed in, and that the zip is always the same."""

from __future__ import annotations

import getpass
import json
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from courses import (
    COUNTING_MLX,
    learner_text,
    make_course,
    solve,
    write,
    write_package,
    write_solution,
)
from runs import change
from submitting import FakeJudge, contents, line, packed, record, submitted

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.paths import Course
from coursekit.task_state import TaskState
from grading.judging import Judged


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """The tiny course, whose learner has done Day 1.1."""
    course = make_course(tmp_path / "course")
    solve(course, "1.1")
    return course


def test_the_zip_holds_the_files_that_count_and_a_word_about_them(course: Course) -> None:
    submitted(course)
    found = contents(course.root / "submission.zip")
    assert list(found) == ["src/tiny_llm/counting.py", "src/tiny_llm/shapes.py", "submission.json"]
    for name in ("counting.py", "shapes.py"):
        assert found[f"src/tiny_llm/{name}"].decode() == learner_text(course, name)
    about = json.loads(found["submission.json"])
    assert about == {
        "format": "tiny-llm submission 1",
        "course": "0",
        "days": {"tiny_llm": ["1.1"]},
        "files": {
            name: sha256(found[name]).hexdigest()
            for name in ("src/tiny_llm/counting.py", "src/tiny_llm/shapes.py")
        },
    }


def test_the_same_code_gives_the_same_bytes_whenever_and_wherever(course: Course, tmp_path: Path) -> None:
    first = packed(course)
    record(course, _1_1_1="passed", _1_1_2="wrong")
    write(course.starter() / "__pycache__" / "shapes.cpython-311.pyc", "x")
    write(course.starter() / "own.py", "x = 1\n")
    assert packed(course) == first
    other = make_course(tmp_path / "elsewhere, with umlauts äöü")
    solve(other, "1.1")
    path = other.starter() / "shapes.py"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert packed(other) == first


def test_other_code_gives_other_bytes(course: Course) -> None:
    first = packed(course)
    change(course, "return size.width * size.height", "return size.height * size.width")
    assert packed(course) != first


def test_nothing_in_the_zip_says_who_or_when(course: Course, tmp_path: Path) -> None:
    submitted(course, out=tmp_path / "anna.zip")
    with zipfile.ZipFile(tmp_path / "anna.zip") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.create_system for entry in archive.infolist()} == {3}
        assert {entry.external_attr >> 16 for entry in archive.infolist()} == {0o100644}
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        assert archive.comment == b""
    content = (tmp_path / "anna.zip").read_bytes()
    assert str(tmp_path).encode() not in content
    assert getpass.getuser().encode() not in contents(tmp_path / "anna.zip")["submission.json"]


def test_the_second_track_is_handed_in_where_it_is_begun(course: Course) -> None:
    write_solution(
        course,
        "counting.py",
        COUNTING_MLX + "\n\ndef total(last: int) -> int:\n    return 1\n",
        "tiny_llm_mlx",
    )
    write_package(course, "tiny_llm_mlx", ())
    assert (
        "src/tiny_llm_mlx/counting.py" not in (submitted(course), contents(course.root / "submission.zip"))[1]
    )
    solve(course, "2.1", package="tiny_llm_mlx")
    judge = FakeJudge(_2_1_1=TaskState.PASSED, _2_1_2=TaskState.PASSED)
    text = submitted(course, judge)
    found = contents(course.root / "submission.zip")
    assert [name for name in found if "mlx" in name] == ["src/tiny_llm_mlx/counting.py"]
    assert json.loads(found["submission.json"])["days"] == {"tiny_llm": ["1.1"], "tiny_llm_mlx": ["2.1"]}
    (_, _, _, first), (files, days, _, second) = judge.asked
    assert (first, second) == (Backend.TORCH, Backend.MLX)
    assert days == ["2.1"]
    assert files["tiny_llm_mlx/counting.py"].decode() == learner_text(course, "counting.py", "tiny_llm_mlx")
    assert files["tiny_llm/shapes.py"].decode() == learner_text(course, "shapes.py")
    assert "What the grader will see in src/tiny_llm_mlx" in text


def test_a_day_that_a_track_has_only_in_part_is_not_its_day(course: Course) -> None:
    solve(course, "2.1", package="tiny_llm_mlx")
    submitted(course)
    assert json.loads(contents(course.root / "submission.zip")["submission.json"])["days"] == {
        "tiny_llm": ["1.1"]
    }


def test_there_is_nothing_to_hand_in_before_the_first_function(tmp_path: Path) -> None:
    course = make_course(tmp_path)
    with pytest.raises(CourseError, match="nothing to hand in"):
        submitted(course)
    assert not (tmp_path / "submission.zip").exists()


def test_the_judge_gets_the_files_that_count_over_a_fresh_starter(course: Course) -> None:
    for file in ("__init__.py", "own.py"):
        write(course.starter() / file, "import os\nos._exit(0)\n")
    (course.starter() / "counting.py").unlink()
    judge = FakeJudge(_1_1_1=TaskState.PASSED, _1_1_2=TaskState.PASSED)
    submitted(course, judge)
    ((files, days, seed, backend),) = judge.asked
    assert days == ["1.1"]
    assert backend is Backend.TORCH
    assert seed
    assert files.keys() == {"tiny_llm/__init__.py", "tiny_llm/counting.py", "tiny_llm/shapes.py"}
    assert files["tiny_llm/__init__.py"] == (course.solution() / "__init__.py").read_bytes()
    assert b'NotImplementedError("Week 2 Day 1 Task 1' in files["tiny_llm/counting.py"]
    assert files["tiny_llm/shapes.py"].decode() == learner_text(course, "shapes.py")
    assert not judge.folders[0].exists()


def test_the_judges_failure_is_said_and_the_zip_is_written_all_the_same(course: Course) -> None:
    record(course, _1_1_1="passed")

    def failing(*arguments: object) -> Judged:
        raise CourseError("no worker could be started")

    text = submitted(course, failing)
    assert "could not be run in the grader's way: no worker could be started" in " ".join(text.split())
    assert line(text, "1.1.1") == "✓ passed 10/10 1.1.1 Area"
    assert len(contents(course.root / "submission.zip")) == 3


def test_a_course_without_a_version_is_refused(course: Course) -> None:
    for text in ("[project]\nname = 'x'\n", "project = 1\n", "[project\n"):
        write(course.root / "pyproject.toml", text)
        with pytest.raises(CourseError, match=r"pyproject\.toml says no version"):
            submitted(course)
