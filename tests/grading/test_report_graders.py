"""Tests of the files that Gradescope and Classroom 50 read."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sample_marks import CALL, REFUSAL, RUNNER, days, forbidden, hostile, late, marks

from coursekit.errors import CourseError
from grading.marks import Marks
from grading.reports.book import Book
from grading.reports.classroom50 import result_json
from grading.reports.gradescope import failure_json, results_json


def gradescope(given: Marks, book: Book | None = None) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(results_json(given, book))
    return document


def test_each_task_is_a_test_with_its_points() -> None:
    document = gradescope(late(marks("PWPPPPPPPP")))
    assert set(document) == {
        *("score", "execution_time", "output", "output_format", "test_output_format", "test_name_format"),
        *("visibility", "stdout_visibility", "tests"),
    }
    assert document["score"] == 112.5
    assert document["execution_time"] == 83
    assert document["output"] == "112.5 of 125 points\nDay 1.3: 3 days late, −7.5 points"
    first, second, *_, last = document["tests"]
    assert first == {
        "score": 10,
        "max_score": 10,
        "status": "passed",
        "name": "Softmax",
        "number": "1.1.1",
        "output": "",
        "visibility": "visible",
        "extra_data": {"state": "passed"},
    }
    assert (second["score"], second["max_score"], second["status"]) == (0, 5, "failed")
    assert (last["score"], last["max_score"]) == (3.5, 5)
    assert sum(test["score"] for test in document["tests"]) == document["score"]


def test_a_failed_test_says_what_is_wrong_and_what_to_do() -> None:
    output = gradescope(marks("PWPPPPPPPP"))["tests"][1]["output"].splitlines()
    assert output[:2] == ["wrong: keeps the shape of its input [L=3]", "tests/week_1/test_day_1.py:103"]
    assert output[2].startswith("the result differs")
    assert output[-2:] == [
        "Read again: Task 2: Linear (pdm run book --open 1.1)",
        "Type: pdm run test 1.1.2",
    ]
    published = gradescope(marks("PWPPPPPPPP"), Book("https://x.example"))["tests"][1]["output"]
    assert "Read again: https://x.example/week_1/day_1.html#task-2-linear (" in published


def test_the_other_states_say_what_they_mean() -> None:
    tests = gradescope(marks("CNSPPPPPPP"))["tests"]
    assert [test["status"] for test in tests[:4]] == ["failed", "failed", "passed", "passed"]
    assert tests[1]["output"].startswith("not started\nRead again: ")
    assert tests[2]["output"] == "skipped"
    assert tests[2]["extra_data"] == {"state": "skipped"}
    call = gradescope(forbidden())["tests"][0]
    assert (call["status"], call["score"]) == ("failed", 0)
    assert CALL in call["output"]


def test_a_refused_submission_has_no_points_and_no_tests() -> None:
    document = gradescope(marks(days=days("PPPPPPPPPP"), refusal=REFUSAL))
    assert (document["score"], document["tests"]) == (0, [])
    assert document["output"] == f"Your submission could not be graded:\n{REFUSAL}"


def test_nothing_is_html_or_markdown_and_the_log_is_for_the_instructor() -> None:
    document = gradescope(hostile(), Book())
    assert {document[key] for key in ("output_format", "test_output_format", "test_name_format")} == {"text"}
    assert (document["visibility"], document["stdout_visibility"]) == ("visible", "hidden")
    assert "\x1b" not in json.loads(results_json(hostile()))["tests"][1]["output"]


def test_what_is_for_the_instructor_is_in_a_test_that_learners_never_see() -> None:
    document = json.loads(results_json(marks(), for_instructor=("isolation: \x1b[31mnone", "late")))
    *tasks, told = document["tests"]
    assert len(tasks) == 10
    assert (told["visibility"], told["output"]) == ("hidden", "isolation: \\x1b[31mnone\nlate")
    assert "score" not in told
    refused = json.loads(results_json(marks(refusal="no"), for_instructor=("why",)))
    assert [test["visibility"] for test in refused["tests"]] == ["hidden"]


def test_a_failure_of_the_grader_is_no_verdict_on_the_code() -> None:
    document = json.loads(failure_json("disk\nfull"))
    assert set(document) == set(gradescope(marks()))
    assert (document["score"], document["execution_time"]) == (0, 0)
    assert "says nothing about your code" in document["output"]
    (told,) = document["tests"]
    assert (told["visibility"], told["output"]) == ("hidden", "disk full")


def test_notes_for_the_instructor_are_left_out() -> None:
    assert b"copied" not in results_json(marks(notes=("copied",)))


def test_shares_of_points_have_no_tail() -> None:
    made = tuple(replace(day, kept=0.1 + 0.2, weight=1 / 3) for day in days("PPPPPPPPPP"))
    document = gradescope(marks(days=made))
    assert document["score"] == 15
    assert document["tests"][0]["max_score"] == 3.3333


def result(given: Marks, **changes: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(result_json(given, {**RUNNER, **changes}))
    return document


def test_the_result_has_the_fields_of_the_schema() -> None:
    document = result(marks("PWPPPPPPPP"))
    assert {key: value for key, value in document.items() if key != "tests"} == {
        "schema": "classroom50/result/v1",
        "classroom": "llm",
        "assignment": "week-1",
        "owner": "ada",
        "submission": RUNNER["SUBMISSION_TAG"],
        "commit": RUNNER["COMMIT_URL"],
        "release": RUNNER["RELEASE_URL"],
        "review": RUNNER["REVIEW_URL"],
        "assignment_type": "individual",
        "datetime": "2026-11-19T03:12:44Z",
        "graded_at": "2026-11-20T03:12:44Z",
        "score": 145,
        "max-score": 150,
    }
    assert document["tests"][0] == {
        "test-name": "1.1.1 Softmax",
        "passed": True,
        "score": 10,
        "max-score": 10,
        "state": "passed",
        "message": "",
        "days-late": 0,
    }
    wrong = document["tests"][1]
    assert (wrong["passed"], wrong["score"], wrong["max-score"]) == (False, 0, 5)
    assert wrong["message"].startswith("the result differs")


def test_points_are_whole_and_rounded_down_but_not_by_the_tail_of_a_share() -> None:
    assert result(late(marks()))["score"] == 117
    made = tuple(replace(day, kept=0.7) for day in days("PPPPPPPPPP")[:1])
    document = result(marks(days=made))
    assert (document["score"], document["max-score"]) == (35, 50)
    tenth = tuple(replace(day, weight=0.11) for day in days("PPPPPPPPPP"))
    document = result(marks(days=tenth))
    assert (document["score"], document["max-score"]) == (16, 16)
    assert all(type(test["score"]) is int for test in document["tests"])


def test_times_are_in_utc() -> None:
    there = datetime(2026, 5, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    document = result(marks(submitted=None, graded=there))
    assert document["datetime"] == document["graded_at"] == "2026-04-30T23:30:00Z"


def test_a_refused_submission_has_no_points_in_classroom_50() -> None:
    document = result(marks(days=days("PPPPPPPPPP"), refusal="no"))
    assert (document["score"], document["max-score"], document["tests"]) == (0, 0, [])


def test_the_mode_is_the_runners() -> None:
    assert result(marks(), MODE="group")["assignment_type"] == "group"
    assert result(marks(), MODE="")["assignment_type"] == "individual"
    with pytest.raises(CourseError, match="MODE is 'alone' for Classroom 50: it must be individual or group"):
        result(marks(), MODE="alone")


def test_a_missing_variable_is_named() -> None:
    environment = {key: value for key, value in RUNNER.items() if key not in ("USERNAME", "REVIEW_URL")}
    with pytest.raises(CourseError, match="lacks USERNAME, REVIEW_URL: run the command in its autograder"):
        result_json(marks(), {**environment, "USERNAME": ""})


def test_the_tag_is_that_of_a_submission() -> None:
    with pytest.raises(CourseError, match="must begin with submit/"):
        result(marks(), SUBMISSION_TAG="v1")
