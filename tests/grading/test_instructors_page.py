"""What the book tells instructors fits the grader: the policy that it shows can be read, the zip of `submit`, too."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from courses import make_course, solve
from submitting import contents, submitted

from coursekit.backends import Backend
from coursekit.book.markdown import Page
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from grading.policy.policy_file import load_policy
from grading.submissions.entries import Entry
from grading.submissions.reading import read_submission
from grading.submissions.starter import make_layouts


def test_the_policy_in_the_book_is_read_as_the_book_says(tmp_path: Path) -> None:
    course = Course.find()
    page = Page.read(course.book / "src" / "instructors.md", "instructors.md")
    (text,) = [fence.text for fence in page.fences if fence.language == "toml"]
    (tmp_path / "course.toml").write_text(text, encoding="utf-8")
    known = [lesson.name for lesson in load_manifest(course).lessons]
    policy, zone = load_policy(tmp_path / "course.toml", known)
    assert str(zone) == "Europe/Berlin"
    assert [(day.name, day.weight) for day in policy.days] == [("1.1", 1), ("1.2", 2)]
    assert (policy.late.grace, policy.late.free) == (timedelta(minutes=15), 3)
    assert [policy.late.kept(days) for days in (0, 1, 5, 6)] == [1.0, 0.9, 0.5, 0.0]
    assert policy.extension("anna", "1.2") == timedelta(days=7)
    assert policy.extension("anna", "1.1") == timedelta()


def test_the_grader_takes_all_files_of_a_zip_of_submit_and_has_nothing_to_say_about_them(
    tmp_path: Path,
) -> None:
    course = make_course(tmp_path / "course")
    solve(course, "1.1")
    submitted(course, out=tmp_path / "anna.zip")
    layouts = make_layouts(course, load_manifest(course), Backend.TORCH)
    handed = read_submission(Entry(tmp_path / "anna.zip"), layouts)
    packed = contents(tmp_path / "anna.zip")
    assert {f"src/{name}": content for name, content in handed.files.items()} == {
        name: content for name, content in packed.items() if name != "submission.json"
    }
    assert handed.notes == ()
