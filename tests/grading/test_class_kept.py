"""What is kept between runs: marks, fingerprints, the seed, and the lock."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from class_folders import torch_layout
from courses import make_course

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from grading.marks import Marks, Student, write_marks
from grading.running import machine
from grading.running.fingerprints import course_fingerprint, draw_fingerprint
from grading.running.kept import Kept
from grading.running.machine import default_jobs
from grading.running.one import refused_marks
from grading.running.rules import Rules, Surveyed
from grading.running.seeds import choose_seed
from grading.submissions.entries import Entry


@pytest.fixture
def course(tmp_path: Path) -> Course:
    course = make_course(tmp_path / "course")
    for path in (
        "src/coursekit/a.py",
        "src/grading/a.py",
        "src/grading/reports/r.py",
        "src/grading/policy/p.py",
    ):
        (course.root / path).parent.mkdir(parents=True, exist_ok=True)
        (course.root / path).write_text("x", encoding="utf-8")
    return course


def rules_of(course: Course) -> Rules:
    lessons = load_manifest(course).lessons
    return Rules(course, lessons, (torch_layout(course),), Backend.TORCH, "secret", "course", "draw")


def graded(kept: Kept, rules: Rules, name: str = "jo") -> tuple[Surveyed, Marks]:
    """A submission, and its marks, which are written."""
    surveyed = Surveyed(
        Entry(Path(name)), Student("jo"), "content", datetime(2026, 1, 1, tzinfo=UTC), ("note",)
    )
    marks = replace(refused_marks(rules, surveyed), isolation="box")
    write_marks(marks, kept.target(name))
    return surveyed, marks


def test_marks_are_found_again_where_nothing_has_changed(tmp_path: Path, course: Course) -> None:
    kept, rules = Kept(tmp_path / "out"), rules_of(course)
    surveyed, marks = graded(kept, rules)
    assert kept.find(surveyed, rules) == marks


def test_learner_time_and_notes_are_those_of_today(tmp_path: Path, course: Course) -> None:
    kept, rules = Kept(tmp_path / "out"), rules_of(course)
    surveyed, marks = graded(kept, rules)
    today = replace(surveyed, student=Student("7", "Jo"), submitted=None, notes=("new",))
    assert kept.find(today, rules) == replace(
        marks, student=Student("7", "Jo"), submitted=None, notes=("new",)
    )


def test_marks_are_not_taken_for_other_files_tests_or_seeds(tmp_path: Path, course: Course) -> None:
    kept, rules = Kept(tmp_path / "out"), rules_of(course)
    surveyed, marks = graded(kept, rules)
    assert kept.find(replace(surveyed, content="other"), rules) is None
    assert kept.find(surveyed, replace(rules, course_hash="other")) is None
    assert kept.find(surveyed, replace(rules, draw="other")) is None
    assert kept.find(replace(surveyed, refusal="no"), rules) is None
    assert kept.find(replace(surveyed, entry=Entry(Path("jo.zip"))), rules) is None
    write_marks(replace(marks, refusal="no"), kept.target("jo"))
    assert kept.find(surveyed, rules) is None
    kept.target("jo").write_bytes(b"{")
    assert kept.find(surveyed, rules) is None


def test_every_name_gets_a_file_of_its_own_that_any_system_takes() -> None:
    kept = Kept(Path("out"))
    names = [
        "a",
        "A",
        "ä",
        "a b",
        "a-b",
        "a\nb",
        "x" * 255,
        "x" * 254,
        "",
        "con",
        "..",
        "C:\\x",
        "\udcff",
        "\udcfe",
        "日本",
    ]
    files = [kept.target(name).name for name in names]
    assert len({file.lower() for file in files}) == len(names)
    for file in files:
        assert file.isascii()
        assert len(file) < 90
        assert not set(file) & set(' \\/:*?"<>|\n')
        assert kept.target("x").parent == Path("out/marks")


def test_a_second_run_is_kept_out_until_the_first_has_ended(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "out")
    with kept.locked():
        (kept.work / "own").touch()
        with pytest.raises(CourseError, match="another run is writing into"), Kept(tmp_path / "out").locked():
            pytest.fail("two runs at the same time")
        assert (kept.work / "own").is_file()
    assert not kept.work.exists()
    with pytest.raises(ZeroDivisionError), kept.locked():
        raise ZeroDivisionError
    assert not kept.work.exists()
    with kept.locked():
        pass


def test_what_a_killed_run_has_left_is_removed_and_marks_stay(tmp_path: Path, course: Course) -> None:
    kept = Kept(tmp_path / "out")
    graded(kept, rules_of(course))
    (kept.work / "old").mkdir(parents=True)
    (kept.marks / ".jo.json.17.tmp").write_bytes(b"{")
    with kept.locked():
        assert list(kept.work.iterdir()) == []
    assert [path.name for path in kept.marks.iterdir()] == [kept.target("jo").name]


def test_a_folder_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CourseError, match="can't write into"), Kept(tmp_path / "file").locked():
        pytest.fail("there is no such folder")


def test_errors_within_the_lock_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), Kept(tmp_path / "out").locked():
        raise OSError("full")


def fingerprint(course: Course, *days: str, backend: Backend = Backend.TORCH) -> str:
    manifest = load_manifest(course)
    lessons = [manifest.lesson(day) for day in days] or manifest.lessons
    return course_fingerprint(course, lessons, backend)


@pytest.mark.parametrize(
    "path",
    [
        "tests/week_1/test_day_1.py",
        "tests/new.npz",
        "lessons/week_1/day_1/lesson.toml",
        "solutions/tiny_llm/shapes.py",
        "src/coursekit/a.py",
        "src/grading/a.py",
        "pdm.lock",
    ],
)
def test_a_change_of_what_decides_on_points_changes_the_fingerprint(path: str, course: Course) -> None:
    before = fingerprint(course)
    assert fingerprint(course) == before
    with open(course.root / path, "ab") as file:
        file.write(b"\n")
    assert fingerprint(course) != before


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "src/tiny_llm/shapes.py",
        "src/grading/reports/r.py",
        "src/grading/policy/p.py",
        "tests/__pycache__/x.pyc",
        "tests/.hidden",
    ],
)
def test_a_change_of_what_does_not_decide_leaves_it(path: str, course: Course) -> None:
    before = fingerprint(course)
    (course.root / path).parent.mkdir(exist_ok=True)
    (course.root / path).write_bytes(b"changed")
    assert fingerprint(course) == before


def test_a_file_that_moves_changes_the_fingerprint(course: Course) -> None:
    before = fingerprint(course)
    (course.tests / "week_1/test_day_1.py").rename(course.tests / "week_1/test_day_9.py")
    assert fingerprint(course) != before


def test_days_and_track_change_the_fingerprint(course: Course) -> None:
    prints = {fingerprint(course), fingerprint(course, "1.1"), fingerprint(course, "1.2")}
    assert len(prints | {fingerprint(course, "1.1", backend=Backend.MLX)}) == 4


def test_a_file_that_can_not_be_read_is_an_error(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Path.read_bytes

    def refusing(path: Path) -> bytes:
        if path.name == "test_day_1.py":
            raise PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refusing)
    with pytest.raises(CourseError, match=r"can't read tests/week_\d/test_day_1.py: Permission denied"):
        fingerprint(course)


def test_the_fingerprint_of_a_seed_tells_seeds_apart_and_does_not_show_them() -> None:
    assert draw_fingerprint("a") == draw_fingerprint("a")
    assert draw_fingerprint("a") != draw_fingerprint("b")
    assert "hunter2" not in draw_fingerprint("hunter2")


@pytest.fixture
def no_variable(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    monkeypatch.setenv("TINY_LLM_SEED", "")
    monkeypatch.delenv("TINY_LLM_SEED")
    return lambda text: monkeypatch.setenv("TINY_LLM_SEED", text)


def test_a_seed_comes_from_the_argument_the_file_or_the_environment(
    tmp_path: Path, course: Course, no_variable: Callable[[str], None]
) -> None:
    (tmp_path / "seed").write_bytes("\ufeffschlüssel \r\n".encode())
    no_variable("of the environment")
    assert choose_seed(course, "given", None) == "given"
    no_variable("of the environment")
    assert choose_seed(course, None, tmp_path / "seed") == "schlüssel"
    no_variable("of the environment")
    assert choose_seed(course, None, None) == "of the environment"
    assert "TINY_LLM_SEED" not in os.environ
    assert not course.state.exists()


def test_the_variable_is_taken_away_whatever_else_is_given(
    course: Course, no_variable: Callable[[str], None]
) -> None:
    no_variable("secret")
    choose_seed(course, "given", None)
    assert "TINY_LLM_SEED" not in os.environ


@pytest.mark.usefixtures("no_variable")
def test_without_a_seed_one_is_drawn_once_and_kept_for_its_owner(course: Course, tmp_path: Path) -> None:
    seed = choose_seed(course, None, None)
    assert len(seed) == 32
    assert choose_seed(course, None, None) == seed
    path = course.state / "grading-seed"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in course.state.iterdir()] == ["grading-seed"]
    assert choose_seed(make_course(tmp_path / "other"), None, None) != seed


@pytest.mark.usefixtures("no_variable")
def test_a_seed_that_is_none_is_an_error(tmp_path: Path, course: Course) -> None:
    (tmp_path / "seed").write_bytes(b" \n")
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(CourseError, match="once"):
        choose_seed(course, "a", tmp_path / "seed")
    for text, file in (("", None), (" ", None), (None, tmp_path / "seed")):
        with pytest.raises(CourseError, match="the seed is empty"):
            choose_seed(course, text, file)
    with pytest.raises(CourseError, match="not UTF-8"):
        choose_seed(course, None, tmp_path / "latin")
    with pytest.raises(CourseError, match="can't read the seed"):
        choose_seed(course, None, tmp_path / "nowhere")
    course.state.mkdir()
    (course.state / "grading-seed").write_bytes(b"")
    with pytest.raises(CourseError, match="is empty: delete it"):
        choose_seed(course, None, None)


def test_an_empty_variable_is_an_error_and_no_seed(
    course: Course, no_variable: Callable[[str], None]
) -> None:
    no_variable("")
    with pytest.raises(CourseError, match="the seed is empty"):
        choose_seed(course, None, None)


@pytest.mark.parametrize(
    ("cores", "gigabytes", "jobs"), [(1, 64, 1), (2, 64, 1), (3, 64, 1), (16, 64, 8), (16, 7, 2), (16, 1, 1)]
)
def test_half_of_the_cores_are_used_where_there_is_memory(
    cores: int, gigabytes: int, jobs: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "meminfo"
    file.write_text(f"MemTotal: 999999999 kB\nMemAvailable:  {gigabytes << 20} kB\n", encoding="ascii")
    monkeypatch.setattr(machine, "MEMORY_FILE", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)), raising=False)
    assert default_jobs() == jobs


def test_without_a_memory_file_there_is_still_an_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "MEMORY_FILE", tmp_path / "nowhere")
    assert default_jobs() >= 1
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert default_jobs() == 1
