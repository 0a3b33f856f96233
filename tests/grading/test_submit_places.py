"""`pdm run submit`: where the zip is written, what is never overwritten, and what is left when it is stopped."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from courses import (
    make_course,
    solve,
    write,
)
from runs import change, environment
from submitting import TESTED, FakeJudge, contents, line, packed, record, submitted, zip_with

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.paths import ROOT_VARIABLE, Course
from coursekit.running.results import Result
from coursekit.task_state import TaskState
from grading.judging import Judged
from grading.submit import submit

COMPRESSED = {"deflated": zipfile.ZIP_DEFLATED, "by bzip2": zipfile.ZIP_BZIP2, "by lzma": zipfile.ZIP_LZMA}


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """The tiny course, whose learner has done Day 1.1."""
    course = make_course(tmp_path / "course")
    solve(course, "1.1")
    return course


def test_a_task_of_which_a_test_did_not_run_earns_nothing(course: Course) -> None:
    judge = FakeJudge(_1_1_1=TaskState.PASSED, _1_1_2=TaskState.PASSED)

    def planning_more(*arguments: Any) -> Judged:
        judged = judge(*arguments)
        judged.report.planned["1.1.1"] = 3
        return judged

    text = submitted(course, planning_more)
    assert line(text, "1.1.1") == "✓ passed 0/10 1.1.1 Area (only 1 of its 3 tests ran)"
    assert "5 of 15 points" in text


def test_a_task_that_can_not_run_here_costs_nothing(course: Course) -> None:
    judge = FakeJudge(_1_1_2=TaskState.PASSED)
    judge.extra = [Result("x", "1.1.1", "", TaskState.SKIPPED, message="needs a GPU")]
    text = submitted(course, judge)
    assert line(text, "1.1.1") == "– skipped –/10 1.1.1 Area (needs a GPU)"
    assert "5 of 5 points in 1 day" in text
    record(course, _1_1_1="skipped", _1_1_2="passed")
    text = submitted(course)
    assert line(text, "1.1.1") == "– skipped –/10 1.1.1 Area"
    assert "5 of 5 points in 1 day" in text


def test_without_a_check_the_last_runs_are_shown(course: Course) -> None:
    record(course, _1_1_1="passed", _1_1_2="crashed")
    text = submitted(course)
    assert "What the grader will see in src/tiny_llm (by your last runs):" in text
    assert line(text, "1.1.1") == "✓ passed 10/10 1.1.1 Area"
    assert line(text, "1.1.2") == "! crashed 0/5 1.1.2 Perimeter"


@pytest.mark.parametrize(("later", "changed"), [(-1.0, False), (0.9, False), (1.0, True), (60.0, True)])
def test_a_file_that_was_saved_after_the_run_is_noticed(course: Course, later: float, changed: bool) -> None:
    """A run is recorded to the second, so that a file of the same second may be older."""
    record(course, TESTED + later, _1_1_1="passed")
    assert ("your files have changed since" in line(submitted(course), "1.1.1")) is changed


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_what_stops_the_check_leaves_the_last_zip_and_no_folder(
    course: Course, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[BaseException]
) -> None:
    before = packed(course)
    change(course, "return size.width * size.height", "return size.height * size.width")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))

    def stopped(*arguments: object) -> Judged:
        raise error

    with pytest.raises(error):
        submitted(course, stopped)
    assert (course.root / "submission.zip").read_bytes() == before
    assert list((tmp_path / "temporary").iterdir()) == []
    assert [path.name for path in course.root.glob("*.zip*")] == ["submission.zip"]


def test_a_submission_of_ours_is_replaced(course: Course, tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "Ünï code.ZIP"
    submitted(course, out=out)
    first = out.read_bytes()
    solve(course, "1.1", "1.2")
    submitted(course, out=out)
    assert out.read_bytes() != first
    assert json.loads(contents(out)["submission.json"])["days"] == {"tiny_llm": ["1.1", "1.2"]}


def cut_short(content: bytes) -> bytes:
    """A zip file of one file, which is said to have more bytes than there are."""
    found, ends, more = bytearray(content), content.index(b"PK\1\2"), struct.pack("<2I", 5000, 5000)
    found[18:26] = found[ends + 20 : ends + 28] = more
    return bytes(found)


def damaged(method: int) -> bytes:
    """A zip file whose list is whole, and of whose compressed file some bytes are not."""
    content = bytearray(zip_with("submission.json", b'{"format": "tiny-llm submission 1"}' * 40, method))
    begin = 30 + len("submission.json") + (9 if method == zipfile.ZIP_LZMA else 0)  # behind the heads
    content[begin : begin + 30] = b"\xff" * 30
    return bytes(content)


def foreign() -> dict[str, bytes]:
    """Files named like a zip that are none of ours."""
    made = {}
    for name, inner, text in (
        ("another zip", "thesis.txt", "x"),
        ("another format", "submission.json", '{"format": "their submission 1"}'),
        ("a list", "submission.json", "[]"),
        ("no json", "submission.json", "{"),
        ("no text", "submission.json", "\udcff"),
        ("a long one", "submission.json", '{"format": "tiny-llm submission 1"}' + " " * (1 << 20)),
    ):
        made[name] = zip_with(inner, text.encode("utf-8", "surrogateescape"))
    ours = zip_with("submission.json", b'{"format": "tiny-llm submission 1"}')
    # Both heads of the file in it (there, and in the list at the end) have flags and the way of compression.
    ends = ours.index(b"PK\1\2")
    encrypted, unknown = bytearray(ours), bytearray(ours)
    for place in (6, ends + 8):
        encrypted[place] |= 1
        unknown[place + 2] = 99
    made |= {"encrypted": bytes(encrypted), "packed strangely": bytes(unknown), "cut short": cut_short(ours)}
    made |= {name: damaged(method) for name, method in COMPRESSED.items()}
    return {**made, "empty": b"", "a text": b"my thesis", "a broken zip": made["another format"][:-30]}


@pytest.mark.parametrize("name", foreign())
def test_a_file_that_is_not_ours_is_never_overwritten(course: Course, name: str) -> None:
    out = course.root / "submission.zip"
    out.write_bytes(foreign()[name])
    with pytest.raises(CourseError, match="is not a submission of this course"):
        submitted(course, FakeJudge())
    assert out.read_bytes() == foreign()[name]


def test_a_place_that_can_not_be_written_is_refused_before_the_tests_run(
    course: Course, tmp_path: Path
) -> None:
    write(tmp_path / "file", "x")
    (tmp_path / "folder.zip").mkdir()
    judge = FakeJudge()
    for out, says in (
        (tmp_path / "folder.zip", "is a folder"),
        (tmp_path / "file" / "a.zip", "is not a folder"),
        (tmp_path / "a.tar", "end in .zip"),
        (tmp_path / "submission", "end in .zip"),
        (tmp_path / ("ü" * 130 + ".zip"), "can't write"),
    ):
        with pytest.raises(CourseError, match=says):
            submitted(course, judge, out)
    assert judge.asked == []


def test_a_full_disk_leaves_the_last_zip(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    before = packed(course)
    solve(course, "1.1", "1.2")
    write_bytes = Path.write_bytes

    def full(self: Path, data: bytes) -> int:
        write_bytes(self, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CourseError, match="No space left on device"):
        submitted(course)
    assert (course.root / "submission.zip").read_bytes() == before
    assert [path.name for path in course.root.glob("*zip*")] == ["submission.zip"]


def run(course: Course, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "grading", "submit", *arguments],
        cwd=course.root,
        env=environment(course),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_the_command_writes_into_the_courses_folder_or_where_it_is_told(
    course: Course, tmp_path: Path
) -> None:
    done = run(course, "--no-check")
    assert done.returncode == 0, done.stderr
    assert "1.1.1  Area" in done.stdout
    done = run(course, "--no-check", "--out", str(tmp_path / "mine.zip"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine.zip").read_bytes() == (course.root / "submission.zip").read_bytes()


def test_the_command_refuses_in_one_line(course: Course) -> None:
    write(course.root / "submission.zip", "my thesis")
    done = run(course, "--no-check")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")


def test_the_command_runs_the_judge_unless_it_is_told_not_to(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = FakeJudge(_1_1_1=TaskState.PASSED, _1_1_2=TaskState.PASSED)
    monkeypatch.setenv(ROOT_VARIABLE, str(course.root))
    monkeypatch.setattr("grading.submit.judge", judge)
    submit(check=False)
    assert judge.asked == []
    submit()
    assert len(judge.asked) == 1


def test_a_command_that_is_terminated_writes_nothing(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(*arguments: object) -> Judged:
        os.kill(os.getpid(), signal.SIGTERM)
        return FakeJudge()(course, course.root / "src", (), "", Backend.TORCH)

    monkeypatch.setenv(ROOT_VARIABLE, str(course.root))
    monkeypatch.setattr("grading.submit.judge", terminated)
    with pytest.raises(SystemExit) as caught:
        submit()
    assert caught.value.code == 128 + signal.SIGTERM
    assert not (course.root / "submission.zip").exists()


def test_a_link_to_nowhere_is_refused_and_one_to_a_submission_is_followed(
    course: Course, tmp_path: Path
) -> None:
    link, target = tmp_path / "link.zip", tmp_path / "target.zip"
    link.symlink_to(target)
    with pytest.raises(CourseError, match="can't read"):
        submitted(course, out=link)
    target.write_bytes(packed(course))
    solve(course, "1.1", "1.2")
    submitted(course, out=link)
    assert link.is_symlink()
    assert target.read_bytes() == packed(course)
