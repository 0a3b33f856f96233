"""Tests of the tables, of JSON, and of the files for gradebooks."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import jsonschema
import pytest
from sample_marks import HOSTILE, a_class, days, forbidden, hostile, late, marks

from coursekit.errors import CourseError
from grading.marks import Student
from grading.reports.document import grades_json, schema_json
from grading.reports.gradebooks import canvas_csv, moodle_csv
from grading.reports.tables import learners_csv, tasks_csv


def rows(table: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(table.decode("utf-8-sig"), newline="")))


def test_a_row_per_learner_sorted_by_name() -> None:
    found = rows(learners_csv([late(marks("PPPPPPPPPN", "Bea")), marks(name="Ada", days=(), refusal="no")]))
    assert found[0] == {
        "id": "ada",
        "name": "Ada",
        "email": "ada@example.org",
        "submission": "ada.zip",
        "submitted": "2026-11-19T03:12:44+00:00",
        "graded": "2026-11-20T03:12:44+00:00",
        "earned": "",
        "points": "",
        "percent": "",
        "refusal": "no",
        "day 1.1": "",
        "day 1.2": "",
        "day 1.3": "",
    }
    assert {**found[1], "graded": ""} == {
        "id": "bea",
        "name": "Bea",
        "email": "bea@example.org",
        "submission": "bea.zip",
        "submitted": "2026-11-19T03:12:44+00:00",
        "graded": "",
        "earned": "114",
        "points": "125",
        "percent": "91.2",
        "refusal": "",
        "day 1.1": "50",
        "day 1.2": "50",
        "day 1.3": "14",
    }


def test_a_row_per_learner_and_task() -> None:
    found = rows(tasks_csv([late(marks("PPPPPPPPWP", "Bea")), forbidden()]))
    assert len(found) == 20
    assert found[18] == {
        "id": "bea",
        "name": "Bea",
        "day": "1.3",
        "task": "1.3.2",
        "title": "Grouped queries",
        "state": "wrong",
        "earned": "0",
        "points": "25",
        "tests_passed": "4",
        "tests": "9",
        "days_late": "3",
        "kept": "0.7",
        "weight": "0.5",
        "checks": "keeps the shape of its input [L=3]",
        "where": "tests/week_1/test_day_3.py:103",
        "failure": found[18]["failure"],
        "calls": "",
    }
    assert found[18]["failure"].startswith("the result differs from the expected one at [3, 0, 1]: 0.3213")
    assert found[0]["calls"] == "torch.softmax"


def test_an_empty_class_has_a_header() -> None:
    assert learners_csv([]).decode("utf-8-sig").startswith("id,name,email,submission")
    assert tasks_csv([]).count(b"\n") == 1


def test_no_cell_of_a_hostile_submission_is_a_formula() -> None:
    for text in ("=1+1", "@x", "\t=1", HOSTILE):
        for table in (learners_csv([hostile(text=text)]), tasks_csv([hostile(text=text)])):
            for row in rows(table):
                assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row.values())
                assert not any("\n" in cell for cell in row.values())


def test_the_document_is_what_its_schema_says() -> None:
    schema = json.loads(schema_json())
    jsonschema.Draft202012Validator.check_schema(schema)
    given = [*a_class(), hostile(), late(marks(name="Zoe", submitted=None))]
    document = json.loads(grades_json(given))
    jsonschema.validate(document, schema)
    assert schema["title"] == document["schema"] == "tiny-llm/grades/v1"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "schema": "tiny-llm/grades/v2"}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "learners": [{"earned": 1}]}, schema)


def test_the_document_has_all_marks_sorted_by_name() -> None:
    document = json.loads(grades_json([late(marks("PPPPPPPPPN", "Bea")), marks(name="Ada")]))
    assert [each["marks"]["student"]["name"] for each in document["learners"]] == ["Ada", "Bea"]
    bea = document["learners"][1]
    assert (bea["earned"], bea["points"], bea["percent"]) == (114, 125, 91.2)
    assert bea["marks"]["days"][2]["tasks"][2]["state"] == "not started"
    assert bea["marks"]["graded"] == "2026-11-20T03:12:44Z"


def test_any_text_can_be_written() -> None:
    document = json.loads(grades_json([hostile()]))
    assert document["learners"][0]["marks"]["student"]["name"] == HOSTILE


def test_canvas_gets_its_columns_and_its_row_of_points() -> None:
    given = [late(marks("PPPPPPPPPN", "Bea")), marks(name="Ada", days=(), refusal="no")]
    lines = canvas_csv(given, "LLM").decode().splitlines()
    assert lines == [
        "Student,ID,SIS User ID,SIS Login ID,Section,"
        "LLM Day 1.1: Attention,LLM Day 1.2: Rotary positions,LLM Day 1.3: Masks and grouped heads",
        "Points Possible,,,,,50,50,50",
        "Ada,,,ada,,,,",
        "Bea,,,bea,,50,50,28",
    ]


def test_canvas_needs_names_and_logins() -> None:
    given = [replace(marks(), student=Student(f"id{number}", " ")) for number in range(7)]
    said = (
        "Canvas finds learners by the roster, which has no name for id0, id1, id2, id3, id4 and 2 more: give"
    )
    with pytest.raises(CourseError, match=said):
        canvas_csv(given, "c")
    with pytest.raises(
        CourseError, match=r"no login for \(no id\): give a roster with the column 'id' filled in"
    ):
        canvas_csv([replace(marks(), student=Student(" ", "Ada"))], "c")


def test_no_learner_is_canvass_row_of_points() -> None:
    with pytest.raises(CourseError, match="Canvas takes the learner x for its row 'Points Possible'"):
        canvas_csv([replace(marks(), student=Student("x", "the Points Possible"))], "c")


def test_moodle_gets_grades_by_e_mail_address() -> None:
    given = [late(marks("PPPPPPPPPN", "Bea")), marks(name="Ada", days=(), refusal="no")]
    assert moodle_csv(given, "LLM").decode().splitlines() == [
        "Full name,ID number,Email address,LLM Day 1.1,LLM Day 1.2,LLM Day 1.3,LLM total,LLM feedback",
        "Ada,ada,ada@example.org,,,,,not graded: no",
        "Bea,bea,bea@example.org,50,50,14,114,114 of 125 points",
    ]


def test_moodle_needs_e_mail_addresses() -> None:
    with pytest.raises(
        CourseError, match="Moodle finds learners by the roster, which has no e-mail address for a: give"
    ):
        moodle_csv([marks(), replace(marks(), student=Student("a", "A"))], "c")


def test_a_day_that_a_learner_lacks_is_empty() -> None:
    given = [marks(name="Ada"), marks(name="Bea", days=days("PPPPPPPPPP")[:1])]
    assert canvas_csv(given, "c").decode().splitlines()[-1] == "Bea,,,bea,,50,,"


def test_names_can_be_no_formulas() -> None:
    given = [replace(marks(), student=Student("=x", "=y", "@z"))]
    assert "'=y,,,'=x," in canvas_csv(given, "c").decode()
    assert "'=y,'=x,'@z," in moodle_csv(given, "c").decode()
