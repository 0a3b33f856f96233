"""Grades small classes from end to end, with a judge that runs nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import fake_judges
import pytest
from class_folders import COUNTING, as_folder, as_repository, as_tar, as_zip
from courses import make_course, write_solution
from fake_judges import by_stubs
from runs import environment

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.paths import Course
from grading.marks import Marks, read_marks
from grading.running.asking import GRADER_FAILED, Asked, run_grade
from grading.running.kept import Kept

PATIENCE = 60.0  # seconds, for a machine that is busy
FAKE = Path(fake_judges.__file__).with_name("grade_with_fake.py")


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path / "course")


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "trace").mkdir()
    monkeypatch.setenv("GRADE_TRACE", str(tmp_path / "trace"))
    monkeypatch.delenv("TINY_LLM_SEED", raising=False)
    return tmp_path / "trace"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A class of four, each in a form of its own; dan's is refused."""
    folder = as_folder(tmp_path / "class", {})
    as_folder(folder / "ann", {"src/tiny_llm/counting.py": COUNTING})
    as_zip(folder / "bob.zip", {"counting.py": b"def total(last):\n    return 3\n"})
    as_repository(folder / "cleo", {"tiny_llm/counting.py": COUNTING + b"x = 1\n"})
    as_tar(folder / "dan.tar.gz", {"../counting.py": b""})
    return folder


class Reports:
    """Keeps what the writer of reports gets."""

    def __init__(self) -> None:
        self.marks: dict[str, Marks] = {}
        self.out = Path()

    def __call__(self, marks: Sequence[Marks], out: Path) -> None:
        self.marks, self.out = {each.student.id: each for each in marks}, out
        assert len(self.marks) == len(marks)


def grade(course: Course, folder: Path, **options: object) -> tuple[int, Reports]:
    reports = Reports()
    asked = Asked(folder, **{"seed": "hush", "jobs": 2, **options})  # type: ignore[arg-type]
    return run_grade(course, asked, by_stubs, reports), reports


def calls(trace: Path) -> list[str]:
    """What the judge was asked since the last look."""
    found = sorted(trace.glob("call-*"))
    texts = [path.read_text(encoding="utf-8") for path in found]
    for path in found:
        path.unlink()
    return texts


def earned(reports: Reports) -> dict[str, int]:
    return {name: sum(day.earned for day in marks.days) for name, marks in reports.marks.items()}


def test_a_class_is_graded_and_a_bad_submission_does_not_stop_it(
    course: Course, folder: Path, trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, reports = grade(course, folder)
    assert code == 0
    assert earned(reports) == {"ann": 25, "bob": 15, "cleo": 25, "dan": 0}
    assert list(reports.marks) == ["ann", "bob", "cleo", "dan"]
    dan, ann = reports.marks["dan"], reports.marks["ann"]
    assert dan.refusal == "../counting.py leads out of the submission by `..`"
    assert dan.points == ann.points == 60
    assert (ann.submission, ann.isolation, ann.refusal) == ("ann", "nothing", "")
    assert ann.seconds > 0
    assert all((ann.content, ann.course, ann.draw))
    out = folder.with_name("class-grades")
    assert reports.out == out
    kept = Kept(out)
    for name in ("ann", "bob.zip", "cleo", "dan.tar.gz"):
        assert read_marks(kept.target(name)) == reports.marks[name.split(".")[0]]
    assert not kept.work.exists()
    printed = capfd.readouterr()
    assert f"3 graded, 1 refused; marks in {kept.marks}" in printed.out
    assert "dan.tar.gz: ../counting.py leads out" in printed.err
    assert "bob: 15 of 60 points" in printed.err
    assert "3/3 " in printed.err


def test_the_judge_gets_the_files_over_a_fresh_starter_and_the_seed(
    course: Course, folder: Path, trace: Path
) -> None:
    (course.starter() / "counting.py").write_text("edited", encoding="utf-8")
    grade(course, folder)
    texts = calls(trace)
    assert len(texts) == 3
    for text in texts:
        assert text.startswith("torch\nhush\n['tiny_llm']\n")
    assert any(text.endswith(COUNTING.decode()) for text in texts)


def test_only_what_changed_is_graded_again(course: Course, folder: Path, trace: Path) -> None:
    _, first = grade(course, folder)
    assert len(calls(trace)) == 3
    code, second = grade(course, folder)
    assert (code, calls(trace)) == (0, [])
    assert second.marks["ann"] == first.marks["ann"]
    as_folder(folder / "ann", {"src/tiny_llm/counting.py": b"# new\n"})
    _, third = grade(course, folder)
    assert len(calls(trace)) == 1
    assert earned(third) == {"ann": 0, "bob": 15, "cleo": 25, "dan": 0}


def test_another_seed_other_tests_other_days_and_again_grade_all(
    course: Course, tmp_path: Path, trace: Path
) -> None:
    folder = as_folder(tmp_path / "class", {"ann/counting.py": COUNTING})
    grade(course, folder)
    calls(trace)
    for options in (
        {"seed": "other"},
        {"seed": "other", "week": 2},
        {"seed": "other", "week": 2, "again": True},
    ):
        grade(course, folder, **options)
        assert len(calls(trace)) == 1
    with open(course.tests / "week_2/test_day_1.py", "a", encoding="utf-8") as file:
        file.write("\n")
    grade(course, folder, seed="other", week=2)
    assert len(calls(trace)) == 1


@pytest.mark.usefixtures("trace")
def test_the_seed_stands_in_no_file_that_is_written(course: Course, folder: Path) -> None:
    as_folder(folder / "eve", {"tiny_llm/counting.py": b"# FAILS"})
    _, reports = grade(course, folder, seed="xyzzy-secret")
    assert "xyzzy" not in repr(reports.marks)
    for path in reports.out.rglob("*"):
        assert path.is_dir() or b"xyzzy" not in path.read_bytes()


def test_a_failure_of_the_grader_is_a_note_and_the_others_are_graded(
    course: Course, folder: Path, trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, word in (("e1", b"FAILS"), ("e2", b"DIES"), ("e3", b"REFUSES"), ("e4", b"ENDS")):
        as_folder(folder / name, {"tiny_llm/counting.py": b"# " + word})
    code, reports = grade(course, folder, jobs=3)
    assert code == GRADER_FAILED
    assert earned(reports) == {"ann": 25, "bob": 15, "cleo": 25, "dan": 0, "e1": 0, "e2": 0, "e3": 0, "e4": 0}
    notes = {name: marks.notes[-1] for name, marks in reports.marks.items() if marks.notes}
    assert notes["e1"].startswith("the grader failed: ZeroDivisionError: no such … (fake_judges.py:")
    assert notes["e2"] == "the grader failed: its process was killed by signal 9"
    assert notes["e3"] == "the grader failed: there is no sandbox here"
    assert notes["e4"].startswith("the grader failed: SystemExit: 0")
    for name in ("e1", "e2", "e3", "e4"):
        assert "says nothing about the code" in reports.marks[name].refusal
        assert read_marks(Kept(reports.out).target(name)) == reports.marks[name]
    assert "4 not graded, because the grader failed" in capfd.readouterr().out
    calls(trace)
    as_folder(folder / "e2", {"tiny_llm/counting.py": COUNTING})
    assert grade(course, folder)[0] == GRADER_FAILED
    assert len(calls(trace)) == 4  # those that failed are tried again


@pytest.mark.usefixtures("trace")
def test_the_roster_names_learners_and_those_who_handed_in_nothing(course: Course, folder: Path) -> None:
    roster = folder / "roster.csv"
    roster.write_text("id;name;submitted\n1;Ann;2026-01-01T00:00Z\n2;Bob;\n5;Eve;\n", encoding="utf-8")
    _, reports = grade(course, folder, roster=roster)
    assert list(reports.marks) == ["1", "2", "cleo", "dan", "5"]
    assert str(reports.marks["1"].submitted) == "2026-01-01 00:00:00+00:00"
    assert reports.marks["cleo"].notes == ("not on the roster",)
    eve = reports.marks["5"]
    assert (eve.refusal, eve.submission, eve.student.name) == ("nothing was handed in", "", "Eve")
    assert (eve.earned, eve.points) == (0, 60)


def test_the_policy_of_the_folder_counts_and_a_change_of_it_grades_nothing_again(
    course: Course, folder: Path, trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = "[late]\npercent_per_day = 50\n[[day]]\nname = '2.1'\nweight = 2\n"
    (folder / "course.toml").write_text(policy, encoding="utf-8")
    _, reports = grade(course, folder)
    assert [day.name for day in reports.marks["ann"].days] == ["2.1"]
    assert (reports.marks["ann"].earned, reports.marks["ann"].points) == (50, 50)
    assert len(calls(trace)) == 3
    due = "due = 2026-02-01T12:00:00Z\n[[extension]]\nlearner = 'nemo'\ndays = 1\n"
    (folder / "course.toml").write_text(policy + due, encoding="utf-8")
    _, reports = grade(course, folder)
    assert calls(trace) == []
    assert reports.marks["cleo"].earned == 25  # committed on 2026-02-02
    assert reports.marks["cleo"].days[0].days_late == 1
    assert not any("only that of its files" in note for note in reports.marks["cleo"].notes)
    assert any("only that of its files" in note for note in reports.marks["ann"].notes)
    assert read_marks(Kept(reports.out).target("cleo")).earned == 25  # without weight and lateness
    assert "extends the time of nemo" in capfd.readouterr().err


@pytest.mark.usefixtures("trace")
def test_the_second_track_gets_both_packages(course: Course, tmp_path: Path, trace: Path) -> None:
    write_solution(course, "counting.py", COUNTING.decode(), "tiny_llm_mlx")
    as_folder(tmp_path / "class/ann", {"src/tiny_llm_mlx/counting.py": COUNTING})
    _, reports = grade(course, tmp_path / "class", backend=Backend.MLX)
    assert calls(trace)[0].startswith("mlx\nhush\n['tiny_llm', 'tiny_llm_mlx']\n")
    assert reports.marks["ann"].refusal == ""


def test_a_dry_run_lists_what_would_be_done_and_writes_nothing(
    course: Course, folder: Path, trace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = folder.with_name("class-grades")
    assert grade(course, folder, dry_run=True)[0] == 0
    assert not out.exists()
    assert capfd.readouterr().out.splitlines() == [
        "ann  ann  to be graded",
        "bob  bob.zip  to be graded",
        "cleo  cleo  to be graded",
        "dan  dan.tar.gz  ../counting.py leads out of the submission by `..`",
    ]
    grade(course, folder)
    as_folder(folder / "ann", {"src/tiny_llm/counting.py": b"# new\n"})
    capfd.readouterr()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert grade(course, folder, dry_run=True)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert capfd.readouterr().out.splitlines()[:2] == ["ann  ann  to be graded", "bob  bob.zip  as before"]


@pytest.mark.usefixtures("trace")
def test_what_is_asked_wrongly_is_told_before_anything_is_written(course: Course, folder: Path) -> None:
    for problem, options in (
        ("lies in", {"out": folder / "grades"}),
        ("lies in", {"out": folder}),
        ("--day 1 of which week", {"day": 1}),
        ("there is no Week 9", {"week": 9}),
        ("there is no Day 1.9", {"week": 1, "day": 9}),
        ("covers no day", {"week": 1, "backend": Backend.MLX}),
        ("can't read the roster", {"roster": folder / "nowhere.csv"}),
        ("can't read the policy", {"policy": folder / "nowhere.toml"}),
        ("the seed is empty", {"seed": " "}),
    ):
        with pytest.raises(CourseError) as caught:
            grade(course, folder, **options)
        if problem != "covers no day":
            assert problem in str(caught.value)
    (folder / "course.toml").write_text("[[day]]\nname = '2.1'\n", encoding="utf-8")
    with pytest.raises(CourseError, match="none of these days counts"):
        grade(course, folder, week=1)
    assert not folder.with_name("class-grades").exists()


@pytest.mark.usefixtures("trace")
def test_files_that_are_no_submissions_are_named(
    course: Course, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "notes\n.txt").write_bytes(b"")
    grade(course, folder, dry_run=True)
    assert "not submissions, so left out: notes\ufffd.txt" in capfd.readouterr().err


@pytest.mark.usefixtures("trace")
def test_the_instructors_own_files_may_lie_beside_the_submissions(
    course: Course, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("roster.csv", "id,name\n1,Ann\n"), ("secret", "hush"), ("course.toml", "")):
        (folder / name).write_text(text, encoding="utf-8")
    own = {"roster": folder / "roster.csv", "seed": None, "seed_file": folder / "secret"}
    grade(course, folder, dry_run=True, **own)
    assert "left out" not in capfd.readouterr().err


@pytest.mark.usefixtures("trace")
def test_a_second_run_is_refused(course: Course, folder: Path) -> None:
    with Kept(folder.with_name("class-grades")).locked(), pytest.raises(CourseError, match="another run"):
        grade(course, folder)


def start(course: Course, trace: Path, *arguments: object) -> subprocess.Popen[str]:
    """The command in a process of its own, as a terminal starts it."""
    variables = environment(course) | {"GRADE_TRACE": str(trace), "TINY_LLM_SEED": "secret"}
    variables["PYTHONPATH"] += os.pathsep + str(FAKE.parent)
    return subprocess.Popen(
        [sys.executable, str(FAKE), "grade", *map(str, arguments)],
        cwd=course.root,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, out, err


def wait_until(trace: Path, pattern: str, count: int) -> list[Path]:
    """Files that processes leave as soon as they are so far."""
    deadline = time.monotonic() + PATIENCE
    while len(found := sorted(trace.glob(pattern))) < count:
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.02)
    return found


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has asked about counts as ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def wait_for_end(pids: Sequence[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < deadline, f"{pids} are left"
        time.sleep(0.02)


@pytest.fixture
def waiting_class(tmp_path: Path) -> Path:
    """One submission that is graded at once, and two whose grading doesn't end."""
    folder = as_folder(tmp_path / "class", {})
    as_folder(folder / "a", {"tiny_llm/counting.py": COUNTING})
    as_folder(folder / "w1", {"tiny_llm/counting.py": b"# WAITS 1"})
    as_folder(folder / "w2", {"tiny_llm/counting.py": b"# WAITS 2"})
    return folder


@pytest.fixture
def pids(trace: Path) -> Iterator[list[int]]:
    """The processes that are started; none is left after a test that has failed."""
    found: list[int] = []
    yield found
    for path in trace.glob("waiting-*"):
        found += map(int, path.read_text(encoding="utf-8").split())
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def until_all_wait(trace: Path, out: Path, pids: list[int]) -> None:
    for path in wait_until(trace, "waiting-*", 2):
        pids += map(int, path.read_text(encoding="utf-8").split())
    wait_until(out / "marks", "*.json", 1)
    assert len(pids) == 4


def test_the_command_ends_with_0_and_without_its_secret_in_the_command_line(
    course: Course, folder: Path, trace: Path
) -> None:
    code, out, _ = ended(start(course, trace, folder, "-j", "1"))
    assert code == 0
    assert "3 graded, 1 refused" in out
    assert all("\nsecret\n" in text for text in calls(trace))


def test_the_command_ends_with_1_where_the_grader_failed_and_with_2_for_a_wrong_argument(
    course: Course, tmp_path: Path, trace: Path
) -> None:
    as_folder(tmp_path / "class/a", {"tiny_llm/counting.py": b"# FAILS"})
    code, _, err = ended(start(course, trace, tmp_path / "class"))
    assert code == 1
    assert "Traceback" not in err
    code, _, err = ended(start(course, trace, tmp_path / "nowhere"))
    assert code == 2
    assert "can't read the folder" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_all_at_once_and_the_next_run_goes_on(
    number: signal.Signals, code: int, course: Course, waiting_class: Path, trace: Path, pids: list[int]
) -> None:
    out = waiting_class.with_name("class-grades")
    process = start(course, trace, waiting_class, "-j", "3")
    until_all_wait(trace, out, pids)
    process.send_signal(number)
    left, _, err = ended(process)
    assert left == code
    assert "Traceback" not in err
    assert all(is_gone(pid) for pid in pids)
    assert len(list(trace.glob("interrupted-*"))) == 2  # the judges could put things in order
    assert [path.name[:2] for path in (out / "marks").iterdir()] == ["a-"]
    assert not (out / ".work").exists()
    calls(trace)
    for name in ("w1", "w2"):
        as_folder(waiting_class / name, {"tiny_llm/counting.py": COUNTING})
    assert ended(start(course, trace, waiting_class, "-j", "2"))[0] == 0
    assert len(calls(trace)) == 2


def test_a_run_that_is_killed_leaves_no_process_and_the_next_run_goes_on(
    course: Course, waiting_class: Path, trace: Path, pids: list[int]
) -> None:
    out = waiting_class.with_name("class-grades")
    process = start(course, trace, waiting_class, "-j", "3")
    until_all_wait(trace, out, pids)
    process.kill()
    process.communicate()
    wait_for_end(pids)
    calls(trace)
    for name in ("w1", "w2"):
        as_folder(waiting_class / name, {"tiny_llm/counting.py": COUNTING})
    code, printed, _ = ended(start(course, trace, waiting_class, "-j", "2"))
    assert code == 0
    assert "2 graded, 1 as before" in printed
    assert len(calls(trace)) == 2
    assert not (out / ".work").exists()


def test_a_judge_that_is_killed_leaves_no_process(
    course: Course, waiting_class: Path, trace: Path, pids: list[int]
) -> None:
    process = start(course, trace, waiting_class, "-j", "3")
    until_all_wait(trace, waiting_class.with_name("class-grades"), pids)
    for judge in (pids[0], pids[2]):
        os.kill(judge, signal.SIGKILL)
    code, printed, _ = ended(process)
    assert code == 1
    assert "1 graded, 2 not graded, because the grader failed" in printed
    wait_for_end(pids)


def test_no_more_run_at_the_same_time_than_were_asked_for(
    course: Course, waiting_class: Path, trace: Path, pids: list[int]
) -> None:
    as_folder(waiting_class / "w3", {"tiny_llm/counting.py": b"# WAITS 3"})
    process = start(course, trace, waiting_class, "-j", "2")
    until_all_wait(trace, waiting_class.with_name("class-grades"), pids)
    assert len(list(trace.glob("call-*"))) == 3
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    assert len(list(trace.glob("call-*"))) == 3


@pytest.mark.usefixtures("trace")
def test_marks_are_json_that_others_can_read(course: Course, folder: Path) -> None:
    _, reports = grade(course, folder, week=2)
    document = json.loads(Kept(reports.out).target("ann").read_bytes())
    assert document["student"]["id"] == "ann"
    assert [task["earned"] for task in document["days"][0]["tasks"]] == [10, 15]
