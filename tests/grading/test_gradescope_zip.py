"""`pdm run grade --gradescope OUT.zip`: what goes into the zip, and what is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from class_folders import git
from courses import make_course, write
from submitting import contents

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.paths import Course
from grading.gradescope import packing
from grading.gradescope.course_files import course_files
from grading.gradescope.packing import write_autograder
from grading.gradescope.settings import read_settings
from grading.running.asking import Asked

SEED = "xyzzy-secret"


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.delenv("TINY_LLM_SEED", raising=False)
    monkeypatch.setenv("TINY_LLM_ROOT", str(tmp_path / "course"))
    return make_course(tmp_path / "course")


def asked(**options: object) -> Asked:
    return Asked(Path(), **{"seed": SEED, **options})  # type: ignore[arg-type]


def test_the_zip_holds_the_course_the_choices_and_the_seed(course: Course, tmp_path: Path) -> None:
    write(course.root / ".course" / "state.json", "{}")
    write(course.root / "src" / "tiny_llm" / "__pycache__" / "shapes.pyc", "x")
    write(course.root / "book" / "src" / "preface.md", "x")
    packed = write_autograder(course, asked(week=1, backend=Backend.TORCH), tmp_path / "out.zip")
    assert (packed.days, packed.points) == (("1.1", "1.2"), 35)
    found = contents(tmp_path / "out.zip")
    own = {name for name in found if not name.startswith("course/")}
    assert own == {"setup.sh", "run_autograder", "autograder.json", "failed.json", "seed"}
    assert found["seed"].decode() == SEED
    assert json.loads(found["autograder.json"]) == {
        "format": "tiny-llm autograder 1",
        "course": "0",
        "week": 1,
        "day": None,
        "backend": "torch",
    }
    for folder in (
        "lessons/week_1/day_1/lesson.toml",
        "solutions/tiny_llm/shapes.py",
        "tests/week_1/test_day_1.py",
    ):
        assert found[f"course/{folder}"] == (course.root / folder).read_bytes()
    assert "course/pyproject.toml" in found
    assert not [name for name in found if "book" in name or ".course" in name or name.endswith(".pyc")]


def test_the_scripts_can_be_run_and_the_seed_be_read_by_its_owner_alone(
    course: Course, tmp_path: Path
) -> None:
    before = os.umask(0o022)
    try:
        write_autograder(course, asked(), tmp_path / "out.zip")
    finally:
        after = os.umask(before)
    assert after == 0o022  # what else is written is not kept from others
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        modes = {info.filename: stat.S_IMODE(info.external_attr >> 16) for info in archive.infolist()}
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert modes["seed"] == 0o600
    assert modes["course/pyproject.toml"] == 0o644
    if sys.platform != "win32":
        assert stat.S_IMODE((tmp_path / "out.zip").stat().st_mode) == 0o600


def test_the_same_course_choices_and_seed_give_the_same_bytes(course: Course, tmp_path: Path) -> None:
    write_autograder(course, asked(), tmp_path / "a.zip")
    (other := tmp_path / "elsewhere").mkdir()
    write_autograder(make_course(other), asked(), tmp_path / "b.zip")
    first = (tmp_path / "a.zip").read_bytes()
    assert (tmp_path / "b.zip").read_bytes() == first
    for options in ({"seed": "other"}, {"week": 1}, {"week": 2, "day": 1}):
        write_autograder(course, asked(**options), tmp_path / "b.zip")
        assert (tmp_path / "b.zip").read_bytes() != first


def test_in_a_checkout_what_git_ignores_is_left_out_and_what_is_new_is_taken(course: Course) -> None:
    write(course.root / ".gitignore", "*.log\n")
    git(course.root, "init", "-q")
    git(course.root, "add", "-A")
    git(course.root, "commit", "-q", "-m", "all")
    before = course_files(course)
    write(course.tests / "run.log", "x")
    write(course.tests / "week_1" / "nëw.py", "new")
    (course.tests / "week_1" / "test_day_2.py").unlink()
    write(course.tests / "week_1" / "test_day_1.py", "changed")
    after = course_files(course)
    assert after.keys() - before.keys() == {"tests/week_1/nëw.py"}
    assert before.keys() - after.keys() == {"tests/week_1/test_day_2.py"}
    assert after["tests/week_1/test_day_1.py"] == b"changed"


def test_without_git_the_same_files_are_found(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    git(course.root, "init", "-q")
    with_git = course_files(course)
    monkeypatch.setenv("PATH", "")
    assert course_files(course) == with_git


def test_the_policy_goes_with_it_and_its_weights_count(course: Course, tmp_path: Path) -> None:
    policy = tmp_path / "rules.toml"
    policy.write_text("[[day]]\nname = '1.1'\nweight = 2\n", encoding="utf-8")
    packed = write_autograder(course, asked(policy=policy), tmp_path / "out.zip")
    assert (packed.days, packed.points) == (("1.1",), 30)
    assert contents(tmp_path / "out.zip")["course.toml"] == policy.read_bytes()


def test_the_seed_may_come_from_a_file(course: Course, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of the file\n", encoding="utf-8")
    write_autograder(course, asked(seed=None, seed_file=tmp_path / "secret"), tmp_path / "out.zip")
    assert contents(tmp_path / "out.zip")["seed"] == b"of the file"


def test_a_file_of_the_course_that_can_not_be_read_is_named(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == "test_day_1.py" and path.parent.name == "week_1":
            raise OSError(5, "Input/output error")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", failing)
    with pytest.raises(CourseError, match=r"^can't read tests/week_1/test_day_1\.py: Input/output error"):
        course_files(course)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"week": 9}, "there is no Week 9"),
        ({"day": 1}, "--day 1 of which week"),
        ({"seed": " "}, "the seed is empty"),
        ({"policy": Path("nowhere.toml")}, "can't read the policy"),
    ],
)
def test_what_is_asked_wrongly_is_told_and_nothing_is_written(
    options: dict[str, object], problem: str, course: Course, tmp_path: Path
) -> None:
    with pytest.raises(CourseError, match=problem):
        write_autograder(course, asked(**options), tmp_path / "out.zip")
    assert not (tmp_path / "out.zip").exists()


def test_only_an_autograder_is_replaced(course: Course, tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    write_autograder(course, asked(), out)
    write_autograder(course, asked(week=1), out)
    assert json.loads(contents(out)["autograder.json"])["week"] == 1
    out.write_bytes(b"mine")
    with pytest.raises(CourseError, match=r"out\.zip is not an autograder of this course"):
        write_autograder(course, asked(), out)
    assert out.read_bytes() == b"mine"
    with pytest.raises(CourseError, match=r"end in \.zip, as Gradescope wants it"):
        write_autograder(course, asked(), tmp_path / "out")


def test_a_zip_that_gradescope_would_not_take_is_not_written(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = write_autograder(course, asked(), tmp_path / "first.zip").size
    monkeypatch.setattr(packing, "LARGEST", size - 1)
    with pytest.raises(CourseError, match="MiB; Gradescope takes 0"):
        write_autograder(course, asked(), tmp_path / "out.zip")
    assert not (tmp_path / "out.zip").exists()
    monkeypatch.setattr(packing, "LARGEST", size)
    write_autograder(course, asked(), tmp_path / "out.zip")


def test_settings_of_another_version_are_refused(tmp_path: Path) -> None:
    for text in ("{}", "", '{"course": "0", "new": 1}'):
        write(tmp_path / "autograder.json", text)
        with pytest.raises(CourseError, match=r"autograder\.json can't be read: "):
            read_settings(tmp_path)
    with pytest.raises(CourseError, match=r"autograder\.json can't be read: "):
        read_settings(tmp_path / "nowhere")


def test_the_scripts_are_bash_whatever_the_line_ends_of_the_checkout(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    for script in packing.SCRIPTS:
        text = (Path(packing.__file__).parent / "scripts" / script).read_bytes()
        (folder / script).write_bytes(text.replace(b"\n", b"\r\n"))
    monkeypatch.setattr(packing.resources, "files", lambda package: tmp_path)
    write_autograder(course, asked(), tmp_path / "out.zip")
    for script in packing.SCRIPTS:
        content = contents(tmp_path / "out.zip")[script]
        assert content.startswith(b"#!/usr/bin/env bash\n")
        assert b"\r" not in content
        if sys.platform == "linux":
            subprocess.run(["bash", "-n"], input=content, check=True)
