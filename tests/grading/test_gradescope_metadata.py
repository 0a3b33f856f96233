"""Who handed in at Gradescope, and when."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from grading.gradescope.metadata import UNKNOWN, HandIn, read_metadata
from grading.marks import Student

TIME = "2018-07-01T14:22:32.365935-07:00"


def read(folder: Path, document: Any) -> HandIn:
    path = folder / "submission_metadata.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return read_metadata(path)


def test_the_learner_and_the_time(tmp_path: Path) -> None:
    assignment = {"due_date": "2018-07-31T23:00:00.000000-07:00", "group_size": None}
    user = {"email": "s@example.org", "id": 1234, "name": "Student User", "assignment": assignment}
    found = read(tmp_path, {"id": 1, "created_at": TIME, "assignment": assignment, "users": [user]})
    assert found.student == Student("s@example.org", "Student User", "s@example.org")
    assert found.submitted == datetime(2018, 7, 1, 21, 22, 32, 365935, tzinfo=UTC)
    assert found.notes == ()


def test_a_learner_without_an_address_has_gradescopes_number(tmp_path: Path) -> None:
    for email in ("", None):
        found = read(tmp_path, {"created_at": TIME, "users": [{"email": email, "id": 12, "name": None}]})
        assert found.student == Student("12")


def test_a_learner_without_address_and_number_is_unknown(tmp_path: Path) -> None:
    assert read(tmp_path, {"created_at": TIME, "users": [{"name": "Ann"}]}).student == Student(
        "unknown", "Ann"
    )


def test_of_a_group_the_first_counts_with_a_note(tmp_path: Path) -> None:
    users = [{"email": f"{name}@example.org", "id": 1, "name": name} for name in ("ann", "bob")]
    found = read(tmp_path, {"created_at": TIME, "users": users})
    assert found.student.name == "ann"
    assert found.notes == ("handed in by a group of 2: extensions are those of ann@example.org",)


def test_no_learner_is_a_note(tmp_path: Path) -> None:
    found = read(tmp_path, {"created_at": TIME, "users": []})
    assert (found.student, found.notes) == (UNKNOWN, ("Gradescope names no learner",))
    assert found.submitted is not None


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("", "is not as expected: Invalid JSON"),
        ([], "is not as expected: Input should be an object"),
        ({"users": []}, "is not as expected: created_at: Field required"),
        ({"created_at": "2018-07-01T14:22:32"}, "created_at: Input should have timezone info"),
        ({"created_at": TIME, "users": [7]}, "is not as expected: users, 0: Input should be"),
    ],
)
def test_a_damaged_file_is_a_note(document: Any, problem: str, tmp_path: Path) -> None:
    found = read(tmp_path, document)
    assert (found.student, found.submitted) == (UNKNOWN, None)
    (note,) = found.notes
    assert problem in note


def test_a_missing_file_is_a_note(tmp_path: Path) -> None:
    found = read_metadata(tmp_path / "submission_metadata.json")
    assert found.submitted is None
    assert found.notes == ("submission_metadata.json can't be read: No such file or directory",)
