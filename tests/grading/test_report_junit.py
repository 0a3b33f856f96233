"""Tests of the report as JUnit writes it."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from xml.etree import ElementTree as ET

from sample_marks import CALL, HOSTILE, REFUSAL, a_class, days, forbidden, hostile, marks

from grading.marks import Marks
from grading.reports.junit import junit_xml


def suites(given: list[Marks]) -> list[ET.Element]:
    root = ET.fromstring(junit_xml(given))
    assert root.tag == "testsuites"
    return list(root)


def test_a_suite_per_learner_and_day_and_a_case_per_task() -> None:
    found = suites([marks("PWCNPPPPPS", "Bea"), marks(name="Ada")])
    assert [suite.get("name") for suite in found][:4] == [
        "Ada: Day 1.1",
        "Ada: Day 1.2",
        "Ada: Day 1.3",
        "Bea: Day 1.1",
    ]
    cases = found[3].findall("testcase")
    assert [case.get("name") for case in cases] == [
        *("1.1.1 Softmax", "1.1.2 Linear", "1.1.3 Scaled dot-product", "1.1.4 Multi-head attention")
    ]
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"], ["failure"]]
    assert [(child.get("type"), child.get("message")) for case in cases for child in case] == [
        ("wrong", "keeps the shape of its input [L=3]"),
        ("crashed", "keeps the shape of its input [L=3]"),
        ("not started", "not started"),
    ]
    assert str(cases[1][0].text).startswith("tests/week_1/test_day_1.py:103\nthe result differs")
    assert [found[3].get(key) for key in ("tests", "failures", "errors", "skipped")] == [
        "4",
        "2",
        "1",
        "0",
    ]
    assert [found[5].get(key) for key in ("tests", "failures", "errors", "skipped")] == [
        "3",
        "0",
        "0",
        "1",
    ]


def test_a_suite_has_all_that_the_schema_of_ant_asks_for_in_its_order() -> None:
    for number, suite in enumerate(suites([*a_class(), hostile()])):
        assert set(suite.attrib) == {
            *(
                "name",
                "package",
                "id",
                "tests",
                "failures",
                "errors",
                "skipped",
                "hostname",
                "timestamp",
                "time",
            )
        }
        assert suite.get("id") == str(number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp", ""))
        tags = [child.tag for child in suite]
        assert tags[0] == "properties"
        assert tags[-2:] == ["system-out", "system-err"]
        assert set(tags[1:-2]) == {"testcase"}
        for case in suite.findall("testcase"):
            assert set(case.attrib) == {"name", "classname", "time"}
            assert len(case) <= 1
        for name in ("name", "package"):
            assert suite.get(name, "").strip()


def test_a_suite_says_whose_it_is_and_how_long_grading_took() -> None:
    [first, *_] = suites([marks()])
    properties = {each.get("name"): each.get("value") for each in first.iter("property")}
    assert properties == {"student": "ada.lovelace", "seconds": "83.250", "isolation": "sandlock"}
    assert (first.get("package"), first.get("hostname"), first.get("time")) == (
        "ada.lovelace",
        "localhost",
        "0.000",
    )
    assert [case.get("classname") for case in first.iter("testcase")] == ["day_1_1"] * 4


def test_a_forbidden_call_and_a_missing_earlier_task_are_failures() -> None:
    [first, *_] = suites([forbidden()])
    [failure] = first.iter("failure")
    assert (failure.get("type"), failure.get("message")) == ("forbidden call", CALL)
    made = days("NPPPPPPPPP")
    waiting = replace(made[0], tasks=(replace(made[0].tasks[0], needs="1.0.1 Zero"), *made[0].tasks[1:]))
    [failure] = suites([marks(days=(waiting,))])[0].iter("failure")
    assert str(failure.text).startswith("needs 1.0.1 Zero first")


def test_what_could_not_be_graded_is_one_error() -> None:
    [suite] = suites([marks(days=days("PPPPPPPPPP"), refusal=REFUSAL)])
    assert (suite.get("name"), suite.get("errors"), suite.get("tests")) == (
        "Ada Lovelace: submission",
        "1",
        "1",
    )
    assert [error.text for error in suite.iter("error")] == [REFUSAL]


def test_times_are_in_utc_without_a_zone() -> None:
    there = datetime(2026, 5, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert suites([marks(graded=there)])[0].get("timestamp") == "2026-04-30T23:30:00"
    assert suites([marks(graded=datetime(2026, 5, 1, 1, 30))])[0].get("timestamp") == "2026-05-01T01:30:00"


def test_nothing_breaks_the_document() -> None:
    for text in (HOSTILE, "]]>", "\x00\x0b\ufffe\ud800", ""):
        assert len(suites([hostile(text=text), hostile(text=text, refusal=text or "no")])) == 4


def test_an_empty_class_is_an_empty_document() -> None:
    assert suites([]) == []
