"""What an autograder finds out about a submission, with a judge that runs nothing."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from class_folders import COUNTING, as_folder
from courses import make_course, write_solution
from fake_judges import by_stubs

from coursekit.backends import Backend
from grading.gradescope.autograder import results_of
from grading.gradescope.packing import write_autograder
from grading.reports.gradescope import FAILED
from grading.running.asking import Asked

SEED = "xyzzy-secret"


class Autograder:
    """An unpacked zip, and what was handed in."""

    def __init__(self, home: Path, **options: object) -> None:
        self.home = home
        course = make_course(home / "course")
        write_solution(course, "counting.py", COUNTING.decode(), "tiny_llm_mlx")
        asked = Asked(Path(), **{"seed": SEED, **options})  # type: ignore[arg-type]
        write_autograder(course, asked, home / "out.zip")
        with zipfile.ZipFile(home / "out.zip") as archive:
            archive.extractall(home / "source")

    def grade(self, files: dict[str, bytes]) -> dict[str, Any]:
        submission, about = as_folder(self.home / "submission", files), self.home / "about.json"
        about.write_text('{"created_at": "2026-01-01T00:00:00Z", "users": [{"id": 7}]}', encoding="utf-8")
        found = results_of(self.home / "source", submission, about, by_stubs)
        assert SEED.encode() not in found
        return dict(json.loads(found))


def numbers(document: dict[str, Any]) -> list[str]:
    return [test["number"] for test in document["tests"] if test["visibility"] == "visible"]


def hidden(document: dict[str, Any]) -> str:
    """What only the instructor sees."""
    (test,) = [test for test in document["tests"] if test["visibility"] == "hidden"]
    return str(test["output"])


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, ["1.1.1", "1.1.2", "1.2.1", "2.1.1", "2.1.2"]),
        ({"week": 1}, ["1.1.1", "1.1.2", "1.2.1"]),
        ({"week": 1, "day": 2}, ["1.2.1"]),
    ],
)
def test_the_days_that_were_asked_for_are_graded_without_a_policy(
    options: dict[str, object], tasks: list[str], tmp_path: Path
) -> None:
    document = Autograder(tmp_path, **options).grade({"counting.py": COUNTING})
    assert numbers(document) == tasks
    assert document["score"] == (25 if "2.1.1" in tasks else 0)


def test_the_track_that_was_asked_for_is_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace").mkdir()
    monkeypatch.setenv("GRADE_TRACE", str(tmp_path / "trace"))
    document = Autograder(tmp_path, backend=Backend.MLX, week=2).grade({"tiny_llm_mlx/counting.py": COUNTING})
    assert document["score"] == 25
    (trace,) = (tmp_path / "trace").glob("call-*")
    assert trace.read_text(encoding="utf-8").startswith(f"mlx\n{SEED}\n")


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("FAILS", "the grader failed: ZeroDivisionError: no such … (fake_judges.py:"),
        ("DIES", "the grader failed: its process was killed by signal 9"),
        ("REFUSES", "the grader failed: there is no sandbox here"),
    ],
)
def test_a_judge_that_fails_gives_no_score_and_the_instructor_the_reason(
    word: str, reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = Autograder(tmp_path).grade({"counting.py": f"# {word}".encode()})
    assert (document["score"], document["output"], numbers(document)) == (0, FAILED, [])
    assert hidden(document).startswith(reason)
    assert reason in capfd.readouterr().err


@pytest.mark.parametrize(("user", "told"), [(0, True), (1000, False)])
def test_the_instructor_is_told_where_code_was_run_as_root(
    user: int, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    autograder = Autograder(tmp_path, week=2)
    monkeypatch.setattr(os, "geteuid", lambda: user, raising=False)
    said = hidden(autograder.grade({"counting.py": COUNTING}))
    assert said.startswith("isolation: limits only" + (", as root\n" if told else "\n"))
