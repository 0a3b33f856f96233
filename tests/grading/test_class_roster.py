"""Reads rosters, and finds out which learner a submission belongs to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from class_folders import as_folder, as_zip

from coursekit.errors import CourseError
from grading.marks import Student
from grading.submissions.entries import Entry
from grading.submissions.matching import Label, assign, label_of
from grading.submissions.roster import Listed, read_roster

JANE = Listed(Student("s1", "Jane van Doe", "jane.doe@example.org"), datetime(2026, 1, 2, tzinfo=UTC))
JOERG = Listed(Student("4711", "Jörg Weiß", "jw@example.org"))
NAMELESS = Listed(Student("s3"))
ROSTER = [JANE, JOERG, NAMELESS]


def roster(tmp_path: Path, content: str | bytes, zone: ZoneInfo | None = None) -> tuple[Listed, ...]:
    path = tmp_path / "roster.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_roster(path, zone)


def refusal(tmp_path: Path, content: str | bytes) -> str:
    with pytest.raises(CourseError) as caught:
        roster(tmp_path, content)
    return str(caught.value)


def owner(tmp_path: Path, name: str, listed: list[Listed] = ROSTER) -> tuple[Student, tuple[str, ...]]:
    found = assign([Entry(tmp_path / f"{name}.zip")], listed)[0]
    return found.student, found.notes


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_roster_is_read_as_spreadsheets_write_it(
    delimiter: str, start: str, end: str, tmp_path: Path
) -> None:
    rows = [["Name", "ID", "group", "E-Mail"], ["Jane Doe", "s1", "x", "j@x.org"], [" Jörg ", " s2 ", "", ""]]
    text = start + end.join(delimiter.join(row) for row in rows) + end
    assert [one.student for one in roster(tmp_path, text)] == [
        Student("s1", "Jane Doe", "j@x.org"),
        Student("s2", "Jörg"),
    ]


def test_quoted_cells_hold_delimiters_and_line_breaks(tmp_path: Path) -> None:
    listed = roster(tmp_path, 'id,name\ns1,"Doe, Jane"\ns2,"a\nb"\n')
    assert [one.student.name for one in listed] == ["Doe, Jane", "a\nb"]


def test_names_in_two_columns_are_joined(tmp_path: Path) -> None:
    listed = roster(tmp_path, "First name,Surname,ID number,Email address\nJane,Doe,s1,j@x.org\n,Cher,s2,\n")
    assert [one.student for one in listed] == [Student("s1", "Jane Doe", "j@x.org"), Student("s2", "Cher")]


def test_the_first_of_several_known_columns_counts_whatever_its_place(tmp_path: Path) -> None:
    assert roster(tmp_path, "SIS User ID,ID,Student\nother,s1,Jane\n")[0].student == Student("s1", "Jane")


def test_empty_and_short_rows_are_no_harm(tmp_path: Path) -> None:
    listed = roster(tmp_path, "id,name,email\n\ns1\n , ,\ns2,B\n")
    assert [one.student for one in listed] == [Student("s1"), Student("s2", "B")]


def test_an_id_twice_is_an_error_that_names_both_lines(tmp_path: Path) -> None:
    assert (
        refusal(tmp_path, "id,name\ns1,A\n\ns1,B\n") == "roster.csv:4: the id 's1' stands in line 2 already"
    )


def test_a_row_without_an_id_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    assert refusal(tmp_path, "id,name\ns1,A\n ,B\n") == "roster.csv:3: this learner has no id"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "roster.csv:1: no column for the id"),
        ("name,email\nA,b\n", "roster.csv:1: no column for the id"),
        ("id,name\n", "lists no learner"),
        ("id,ID\na,b\n", "roster.csv:1: there are two columns 'id'"),
        ('id\n"a', "roster.csv:2: unexpected end of data"),
    ],
)
def test_a_roster_without_learners_or_ids_is_an_error(text: str, problem: str, tmp_path: Path) -> None:
    assert problem in refusal(tmp_path, text)


def test_empty_headers_may_come_twice(tmp_path: Path) -> None:
    assert roster(tmp_path, "id,,\ns1,,\n")[0].student.id == "s1"


def test_a_roster_that_can_not_be_read_is_an_error(tmp_path: Path) -> None:
    assert "not UTF-8" in refusal(tmp_path, b"id,name\ns1,J\xf6rg\n")
    with pytest.raises(CourseError, match="can't read the roster"):
        read_roster(tmp_path / "nowhere.csv")


def test_times_have_a_zone_or_get_that_of_the_policy(tmp_path: Path) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    text = "id,submitted\ns1,2026-07-01 23:59\ns2,2026-07-01T23:59:00+05:00\ns3,\n"
    times = [one.submitted for one in roster(tmp_path, text, berlin)]
    assert times == [
        datetime(2026, 7, 1, 21, 59, tzinfo=UTC),
        datetime(2026, 7, 1, 23, 59, tzinfo=timezone(timedelta(hours=5))),
        None,
    ]


def test_times_that_say_nothing_are_errors_that_name_the_line(tmp_path: Path) -> None:
    assert refusal(tmp_path, "id,submitted\ns1,soon\n").startswith("roster.csv:2: 'soon' is no time")
    assert "roster.csv:2: '2026-07-01' names no time zone" in refusal(
        tmp_path, "id,submitted\ns1,2026-07-01\n"
    )


@pytest.mark.parametrize(
    ("stem", "label"),
    [
        ("Jane van Doe_12345_assignsubmission_file_", Label("Jane van Doe", "12345")),
        ("Jane_Doe_12345_assignsubmission_onlinetext", Label("Jane_Doe", "12345")),
        ("doejane_12345_67890_tiny_llm", Label("doejane", "12345")),
        ("doejane_LATE_12345_67890_a", Label("doejane", "12345", late=True)),
        ("jane_doe", Label("jane_doe")),
        ("hw_1", Label("hw_1")),
        ("a_1_x_y", Label("a_1_x_y")),
        ("Jane\nDoe", Label("Jane\nDoe")),
    ],
)
def test_names_of_moodle_and_canvas_are_understood(stem: str, label: Label) -> None:
    assert label_of(stem) == label


@pytest.mark.parametrize(
    "name",
    [
        "s1",
        "S1",
        "Jane van Doe",
        "jane_van-doe",
        "Doe, Jane van",
        "jane.doe@example.org",
        "Jane.Doe",
        "doejanevan_1_2_file",
        "doejanevan_LATE_1_2_file",
        "Jane van Doe_99_assignsubmission_file_",
    ],
)
def test_a_submission_is_matched_by_id_email_and_name(name: str, tmp_path: Path) -> None:
    student, notes = owner(tmp_path, name)
    assert student == JANE.student
    assert notes == (("Canvas marks it as late",) if "LATE" in name else ())


@pytest.mark.parametrize("name", ["jorg WEIss", "weißjörg_4711_5_x", "whoever_4711_5_x", "JW"])
def test_accents_numbers_and_case_are_no_obstacle(name: str, tmp_path: Path) -> None:
    assert owner(tmp_path, name)[0] == JOERG.student


def test_the_time_of_the_roster_comes_with_the_learner(tmp_path: Path) -> None:
    assert assign([Entry(tmp_path / "s1.zip")], ROSTER)[0].submitted == JANE.submitted


def test_a_submission_that_fits_nobody_keeps_its_name_with_a_note(tmp_path: Path) -> None:
    assert owner(tmp_path, "Max") == (Student("Max", "Max"), ("not on the roster",))
    assert owner(tmp_path, "max_1_2_x") == (Student("max 1", "max"), ("not on the roster",))
    assert owner(tmp_path, "---")[1] == ("not on the roster",)


def test_a_submission_that_fits_two_learners_is_given_to_neither(tmp_path: Path) -> None:
    twins = [Listed(Student("1", "Ann Lee")), Listed(Student("2", "Lee Ann"))]
    assert owner(tmp_path, "annlee_7_8_x", twins) == (
        Student("annlee 7", "annlee"),
        ("more than one learner of the roster has this name",),
    )


def test_an_id_comes_before_a_name(tmp_path: Path) -> None:
    listed = [Listed(Student("x", "lee")), Listed(Student("lee", "x"))]
    assert owner(tmp_path, "lee", listed)[0].id == "lee"
    assert owner(tmp_path, "LEE", [*listed, Listed(Student("LEE", ""))])[0].id == "LEE"


def test_without_a_roster_the_number_or_the_name_is_the_id(tmp_path: Path) -> None:
    assert owner(tmp_path, "Jane Doe_7_assignsubmission_file_", []) == (Student("7", "Jane Doe"), ())
    assert owner(tmp_path, "jane", []) == (Student("jane"), ())
    assert owner(tmp_path, "doe_LATE_7_8_x", []) == (Student("7", "doe"), ("Canvas marks it as late",))


def test_two_submissions_of_one_learner_are_an_error(tmp_path: Path) -> None:
    entries = [Entry(as_folder(tmp_path / "s1")), Entry(as_zip(tmp_path / "Jane van Doe.zip"))]
    with pytest.raises(CourseError, match=r"^s1 and Jane van Doe\.zip both belong to s1: move one"):
        assign(entries, ROSTER)
    with pytest.raises(CourseError, match="both belong to jo"):
        assign([Entry(as_folder(tmp_path / "jo")), Entry(as_zip(tmp_path / "jo.zip"))], [])
    assert assign([], ROSTER) == []
