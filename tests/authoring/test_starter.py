"""The starter: generated, checked, and never at the cost of a learner's work."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import typer
from courses import COUNTING, SHAPES, learner_text, make_course, solve, write, write_solution

from authoring.starter import drifted, starter, wanted_files
from coursekit.errors import CourseError
from coursekit.lessons.outline import stubbed
from coursekit.manifest import load_manifest
from coursekit.paths import Course


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return make_course(tmp_path)


def git(course: Course, *arguments: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(course.root), *identity, *arguments], check=True, capture_output=True)


def commit_all(course: Course) -> None:
    if not (course.root / ".git").is_dir():
        git(course, "init", "-q")
    write(course.root / ".gitignore", ".course/\n")
    git(course, "add", "-A")
    git(course, "commit", "-q", "-m", "all")


def backups(course: Course) -> dict[str, str]:
    """Every copy kept, by its path below its backup's folder."""
    folder = course.state / "backups"
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {
        path.relative_to(folder).as_posix().partition("/")[2]: path.read_bytes().decode() for path in paths
    }


def test_check_passes_on_a_fresh_starter(course, capsys):
    with pytest.raises(typer.Exit) as caught:
        starter(check=True)
    assert caught.value.exit_code == 0
    assert "agrees with the reference" in capsys.readouterr().out


def test_check_lists_drifted_files_with_a_diff_and_changes_nothing(course, capsys):
    write_solution(course, "counting.py", COUNTING.replace("STEP = 1", "STEP = 2"))
    write_solution(course, "new.py", "x = 1\n")
    write(course.starter() / "mine.py", "y = 1\n")
    with pytest.raises(typer.Exit) as caught:
        starter(check=True)
    out = capsys.readouterr().out
    assert caught.value.exit_code == 1
    assert "src/tiny_llm/counting.py differs" in out
    assert "    -STEP = 1\n    +STEP = 2\n" in out
    assert "src/tiny_llm/new.py is missing" in out
    assert "src/tiny_llm/mine.py has no file behind it in the reference" in out
    assert "STEP = 1" in learner_text(course, "counting.py")


def test_line_ends_are_no_drift(course):
    path = course.starter() / "shapes.py"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert drifted(course, wanted_files(course, load_manifest(course))) == []


def test_a_changed_reference_is_generated_anew_again_and_again(course, capsys):
    starter()
    for step in (2, 3):
        write_solution(course, "counting.py", COUNTING.replace("STEP = 1", f"STEP = {step}"))
        starter()
        assert f"STEP = {step}" in learner_text(course, "counting.py")
    assert "1 written" in capsys.readouterr().out
    assert backups(course) == {}


def test_a_learners_work_is_never_overwritten(course):
    solve(course, "1.1")
    before = learner_text(course, "shapes.py")
    write_solution(course, "counting.py", COUNTING.replace("STEP = 1", "STEP = 2"))
    with pytest.raises(CourseError, match=r"src/tiny_llm/shapes\.py.*changed by hand.*--force"):
        starter()
    assert learner_text(course, "shapes.py") == before
    assert "STEP = 1" in learner_text(course, "counting.py")


def test_force_overwrites_after_keeping_copies(course, capsys):
    solve(course, "1.1")
    before = learner_text(course, "shapes.py")
    starter(force=True)
    assert "area" in stubbed(learner_text(course, "shapes.py"))
    assert backups(course)["src/tiny_llm/shapes.py"] == before
    assert ".course/backups/" in capsys.readouterr().out


def test_committed_files_may_be_overwritten_and_copies_are_kept(course):
    solve(course, "1.1")
    before = learner_text(course, "shapes.py")
    commit_all(course)
    starter()
    assert "area" in stubbed(learner_text(course, "shapes.py"))
    assert backups(course)["src/tiny_llm/shapes.py"] == before


def test_work_beyond_the_last_commit_is_not_overwritten(course):
    commit_all(course)
    solve(course, "1.1")
    with pytest.raises(CourseError, match="changed by hand"):
        starter()


def test_a_file_that_left_the_reference_is_deleted_if_it_was_generated(course):
    starter()
    (course.solution() / "counting.py").unlink()
    write(course.starter() / "mine.py", "y = 1\n")
    (course.lessons / "week_2/day_1/lesson.toml").unlink()
    starter()
    assert not (course.starter() / "counting.py").exists()
    assert (course.starter() / "mine.py").exists()


def test_a_changed_file_that_left_the_reference_stays(course, capsys):
    starter()
    solve(course, "2.1")
    (course.solution() / "counting.py").unlink()
    (course.lessons / "week_2/day_1/lesson.toml").unlink()
    starter()
    assert learner_text(course, "counting.py") == COUNTING
    assert "left     src/tiny_llm/counting.py" in capsys.readouterr().out


def test_a_committed_file_is_deleted_only_if_the_reference_had_it(course):
    write(course.starter() / "mine.py", "y = 1\n")
    commit_all(course)
    (course.solution() / "counting.py").unlink()
    (course.lessons / "week_2/day_1/lesson.toml").unlink()
    starter()
    assert not (course.starter() / "counting.py").exists()
    assert (course.starter() / "mine.py").exists()


def test_a_committed_file_that_was_changed_since_is_not_deleted(course):
    commit_all(course)
    solve(course, "2.1")
    (course.solution() / "counting.py").unlink()
    (course.lessons / "week_2/day_1/lesson.toml").unlink()
    starter()
    assert learner_text(course, "counting.py") == COUNTING


def test_nothing_is_written_when_a_file_can_not_be(course, monkeypatch):
    write_solution(course, "counting.py", COUNTING.replace("STEP = 1", "STEP = 2"))
    write_solution(course, "shapes.py", SHAPES.replace("Given.", "Given!"))
    starter_files = {path: path.read_bytes() for path in course.starter().iterdir()}
    write_bytes = Path.write_bytes

    def full_disk(path: Path, content: bytes) -> int:
        if "shapes.py" in path.name and path.parent == course.starter():
            raise OSError(28, "No space left on device", str(path))
        return write_bytes(path, content)

    commit_all(course)
    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(CourseError, match="No space left on device"):
        starter()
    assert {path: path.read_bytes() for path in course.starter().iterdir()} == starter_files
