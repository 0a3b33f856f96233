"""Reads the policy of a class, and says what is wrong in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coursekit.errors import CourseError
from grading.policy.policy import Late, Policy, PolicyDay
from grading.policy.policy_file import load_policy

KNOWN = ("1.1", "1.2", "2.1")
WHOLE = """\ufefftitle = "Engines"
timezone = "Europe/Berlin"

[late]
grace_minutes = 10
percent_per_day = 12.5
cap_days = 4
free_days = 3

[[day]]
name = "1.1"
due = 2026-03-31T23:59:00
weight = 2

[[day]]
name = "2.1"
due = 2026-03-31T23:59:00Z

[[day]]
name = "1.2"

[[extension]]
learner = "s1"
days = 2

[[extension]]
learner = "s1"
days = 1
day = "2.1"

[[extension]]
learner = "s1"
days = 4
day = "2.1"
"""


def load(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "course.toml"
    path.write_bytes(text.encode())
    return load_policy(path, KNOWN)[0]


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(CourseError) as caught:
        load(tmp_path, text)
    return str(caught.value)


def test_a_whole_policy_is_read(tmp_path: Path) -> None:
    policy = load(tmp_path, WHOLE)
    assert policy.title == "Engines"
    assert policy.late == Late(timedelta(minutes=10), 12.5, 4, 3)
    assert policy.days == (
        PolicyDay("1.1", 2, datetime(2026, 3, 31, 21, 59, tzinfo=UTC)),
        PolicyDay("2.1", 1, datetime(2026, 3, 31, 23, 59, tzinfo=UTC)),
        PolicyDay("1.2"),
    )
    assert policy.has_due


def test_extensions_are_added_up(tmp_path: Path) -> None:
    policy = load(tmp_path, WHOLE)
    assert policy.extension("s1", "1.1") == timedelta(days=2)
    assert policy.extension("s1", "2.1") == timedelta(days=7)
    assert policy.extension("s2", "2.1") == timedelta()


def test_the_zone_of_times_without_one_is_given_too(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('timezone = "America/New_York"\n', encoding="utf-8")
    assert str(load_policy(tmp_path / "a.toml", KNOWN)[1]) == "America/New_York"
    (tmp_path / "a.toml").write_text("", encoding="utf-8")
    assert load_policy(tmp_path / "a.toml", KNOWN) == (Policy(), None)


def test_a_policy_without_due_times_does_not_care_for_time(tmp_path: Path) -> None:
    assert not load(tmp_path, "[[day]]\nname='1.1'\n").has_due
    assert not Policy().has_due


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("titel = 'x'", "course.toml: titel: Extra inputs are not permitted"),
        ("title = 1", "title: Input should be a valid string"),
        ("[late]\ngrace = 1", "late, grace: Extra"),
        ("[late]\ngrace_minutes = -1", "late, grace_minutes: "),
        ("[late]\ngrace_minutes = 10081", "late, grace_minutes: "),
        ("[late]\npercent_per_day = 100.1", "late, percent_per_day: "),
        ("[late]\npercent_per_day = nan", "late, percent_per_day: "),
        ("[late]\npercent_per_day = -1", "late, percent_per_day: "),
        ("[late]\ncap_days = -1", "late, cap_days: "),
        ("[late]\nfree_days = 101", "late, free_days: "),
        ("[late]\nfree_days = 1.5", "late, free_days: "),
        ("[late]\nfree_days = true", "late, free_days: "),
        ("late = 3", "late: "),
        ("[[day]]\nweight = 1", "[[day]] 1, name: Field required"),
        ("[[day]]\nname='1.1'\n[[day]]\nname='1.2'\nweight=-1", "[[day]] 2, weight: "),
        ("[[day]]\nname='1.1'\nweight=inf", "[[day]] 1, weight: "),
        ("[[day]]\nname='1.1'\ndue=2026-03-31", "[[day]] 1, due: give date and time without quotes"),
        ("[[day]]\nname='1.1'\ndue='2026-03-31T00:00:00Z'", "[[day]] 1, due: give date and time"),
        ("[[day]]\nname='1.1'\ndue=1776000000", "[[day]] 1, due: give date and time"),
        ("[[day]]\nname='1.1'\ndue=0026-03-31T00:00:00Z", "[[day]] 1, due: the year 26 is not meant"),
        ("[[day]]\nname='1.1'\ndue=2026-03-31T00:00:00", "[[day]] 1, due: it needs a time zone"),
        ("[[day]]\nname='9.1'", "[[day]] 1, name: there is no Day 9.1"),
        ("[[day]]\nname='1.1'\n[[day]]\nname='1.1'", "[[day]] 2, name: Day 1.1 stands there twice"),
        ("[[extension]]\nlearner=''\ndays=1", "[[extension]] 1, learner: "),
        ("[[extension]]\nlearner='a'", "[[extension]] 1, days: Field required"),
        ("[[extension]]\nlearner='a'\ndays=0", "[[extension]] 1, days: "),
        ("[[extension]]\nlearner='a'\ndays=1001", "[[extension]] 1, days: "),
        ("[[extension]]\nlearner='a'\ndays=1\nday='9.1'", "[[extension]] 1, day: there is no Day 9.1"),
        ("timezone = 'Nowhere/X'", "timezone: 'Nowhere/X' is not known: write it like Europe/Berlin"),
        ("timezone = '../etc'", "timezone: '../etc' is not known"),
        ("[[day]\n", "at line 1"),
    ],
)
def test_what_is_wrong_is_told_by_its_name(text: str, problem: str, tmp_path: Path) -> None:
    told = refusal(tmp_path, text)
    assert told.startswith("course.toml: ")
    assert problem in told


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    assert len(refusal(tmp_path, "a=1\nb=1").splitlines()) == 2
    text = "[[day]]\nname='9.1'\n[[day]]\nname='9.2'\n[[extension]]\nlearner='a'\ndays=1\nday='9.3'"
    assert len(refusal(tmp_path, text).splitlines()) == 3


def test_a_policy_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="can't read the policy"):
        load_policy(tmp_path / "nowhere.toml", KNOWN)
    (tmp_path / "latin.toml").write_bytes(b"title = '\xf6'")
    with pytest.raises(CourseError, match="not UTF-8"):
        load_policy(tmp_path / "latin.toml", KNOWN)


def test_what_is_kept_falls_by_the_day_and_ends_at_the_cap() -> None:
    late = Late(percent=30, cap=5)
    assert [late.kept(days) for days in range(7)] == [1.0, 0.7, 0.4, 0.1, 0.0, 0.0, 0.0]
    assert [Late(percent=0, cap=1).kept(days) for days in range(3)] == [1.0, 1.0, 0.0]
    assert Late(percent=0, cap=0).kept(0) == 1.0
    assert Late(percent=0).kept(1000) == 1.0
