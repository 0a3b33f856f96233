"""Tests of writing all reports, or none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sample_marks import RUNNER, a_class, marks

from coursekit.errors import CourseError
from grading.marks import Student
from grading.reports import Format, Options, write_reports
from grading.reports.book import Book

FILES = {
    Format.HTML: {"class.html", "learners/ada.html", "learners/bea.html"},
    Format.MARKDOWN: {"class.md", "learners/ada.md", "learners/bea.md"},
    Format.CSV: {"grades.csv", "tasks.csv"},
    Format.JSON: {"grades.json", "grades.schema.json"},
    Format.JUNIT: {"junit.xml"},
    Format.MOODLE: {"moodle.csv"},
    Format.CANVAS: {"canvas.csv"},
}
SINGLE = {Format.GRADESCOPE: "results.json", Format.CLASSROOM50: "result.json"}
OPTIONS = Options(environment=RUNNER)


def below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("wanted", list(FILES))
def test_a_format_writes_its_files_and_no_others(wanted: Format, tmp_path: Path) -> None:
    written = write_reports([marks(name="Bea"), marks(name="Ada")], tmp_path / "a" / "b", [wanted])
    assert (
        below(tmp_path / "a" / "b")
        == FILES[wanted]
        == {p.relative_to(tmp_path / "a/b").as_posix() for p in written}
    )


@pytest.mark.parametrize("wanted", list(SINGLE))
def test_some_formats_are_about_one_submission(wanted: Format, tmp_path: Path) -> None:
    write_reports([marks()], tmp_path, [wanted], OPTIONS)
    assert below(tmp_path) == {SINGLE[wanted]}
    for given in ([], [marks(name="Ada"), marks(name="Bea")]):
        said = f"the format {wanted} reports on one submission, and there are {len(given)}: grade one"
        with pytest.raises(CourseError, match=said):
            write_reports(given, tmp_path / "x", [wanted], OPTIONS)
    assert not (tmp_path / "x").exists()


def test_every_format_at_once(tmp_path: Path) -> None:
    written = write_reports([marks(name="Ada")], tmp_path, set(Format), OPTIONS)
    everything = {
        *SINGLE.values(),
        *(name for names in FILES.values() for name in names if "bea" not in name),
    }
    assert below(tmp_path) == everything
    assert [path.parent.name for path in written[-2:]] == ["learners", "learners"]
    assert len(written) == len(everything)


def test_no_format_writes_nothing(tmp_path: Path) -> None:
    assert write_reports([marks()], tmp_path / "out", []) == ()
    assert not (tmp_path / "out").exists()


def test_an_empty_class_has_reports(tmp_path: Path) -> None:
    write_reports([], tmp_path, list(FILES))
    assert below(tmp_path) == {name for names in FILES.values() for name in names if "learners/" not in name}


def test_formats_have_the_names_of_the_command_line() -> None:
    assert [str(each) for each in Format] == [
        *("html", "markdown", "csv", "json", "junit", "gradescope", "classroom50", "moodle", "canvas")
    ]


def test_two_submissions_of_one_learner_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="two submissions are of the learner ada: keep one"):
        write_reports([marks(name="Ada"), marks(name="Bea"), marks(name="Ada")], tmp_path, [Format.CSV])
    assert below(tmp_path) == set()


def test_ids_that_differ_in_case_have_pages_of_their_own(tmp_path: Path) -> None:
    given = [replace(marks(), student=Student(identity)) for identity in ("ada", "Ada", "../ada", "ada\n")]
    write_reports(given, tmp_path / "out", [Format.HTML])
    names = [path.name.lower() for path in (tmp_path / "out" / "learners").iterdir()]
    assert len(names) == len(set(names)) == 4
    assert below(tmp_path) == below(tmp_path / "out") or {path.name for path in tmp_path.iterdir()} == {"out"}


def test_an_error_in_one_report_changes_none(tmp_path: Path) -> None:
    write_reports([marks(name="Ada")], tmp_path, [Format.CSV])
    before = (tmp_path / "grades.csv").read_bytes()
    changed = [replace(marks("NNNNNNNNNN"), student=Student("ada", "Ada"))]
    with pytest.raises(CourseError, match="no e-mail address"):
        write_reports(changed, tmp_path, [Format.CSV, Format.MOODLE])
    assert (tmp_path / "grades.csv").read_bytes() == before


def test_a_folder_that_cannot_be_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CourseError, match="can't write"):
        write_reports([marks()], tmp_path / "file", [Format.CSV])


def test_other_files_stay_and_old_reports_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "grades.csv").write_text("old")
    write_reports([marks()], tmp_path, [Format.CSV])
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert "Ada Lovelace" in (tmp_path / "grades.csv").read_text(encoding="utf-8-sig")


def test_the_course_and_the_book_are_on_the_pages(tmp_path: Path) -> None:
    options = Options(course="Systems & models", book=Book("https://x.example"))
    everything = [Format.HTML, Format.MARKDOWN, Format.GRADESCOPE, Format.MOODLE, Format.CANVAS]
    write_reports([marks("WPPPPPPPPP", "Ada")], tmp_path, everything, options)
    for name in ("class.html", "learners/ada.html"):
        assert "Systems &amp; models" in (tmp_path / name).read_text()
    for name in ("class.md", "learners/ada.md", "moodle.csv", "canvas.csv"):
        assert "Systems & models" in (tmp_path / name).read_text()
    for name in ("learners/ada.html", "learners/ada.md", "results.json"):
        assert "https://x.example/week_1/day_1.html#task-1-softmax" in (tmp_path / name).read_text()


def test_the_course_has_a_name_and_the_environment_is_the_processs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in RUNNER.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("MODE", raising=False)
    write_reports([marks()], tmp_path, [Format.CLASSROOM50, Format.HTML])
    assert json.loads((tmp_path / "result.json").read_text())["owner"] == "ada"
    assert "tiny-llm" in (tmp_path / "class.html").read_text()


def test_the_same_marks_give_the_same_files_in_any_order(tmp_path: Path) -> None:
    given = a_class()
    write_reports(given, tmp_path / "a", list(FILES))
    write_reports(given[::-1], tmp_path / "b", list(FILES))
    for name in below(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
