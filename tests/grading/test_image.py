"""`Dockerfile.grade`: what it copies is there and is enough, and what it runs is what README and book say."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from class_folders import as_folder
from confinement import usable
from containers import Container

from coursekit.book.markdown import Page
from coursekit.paths import Course
from grading.gradescope.course_files import FILES, FOLDERS
from grading.sandbox.landlock import LandlockAndSeccomp

ROOT = Course.find().root
NAME = "Dockerfile.grade"
ANOTHER = (
    "setpriv",
    "--reuid",
    "12345",
    "--regid",
    "12345",
    "--clear-groups",
    "--inh-caps=-all",
    "--ambient-caps=-all",
)
"""Becomes a user that the system doesn't know."""
INSTRUCTIONS = {"FROM", "RUN", "USER", "WORKDIR", "ENV", "COPY", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """Each instruction and its arguments, without comments, on one line."""
    text = (ROOT / NAME).read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    lines = [" ".join(line.split()) for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def arguments(name: str) -> list[str]:
    return [rest for instruction, rest in instructions() if instruction == name]


def copied() -> dict[str, str]:
    """Where each copied file or folder comes from and goes to."""
    found: dict[str, str] = {}
    for rest in arguments("COPY"):
        *sources, target = [word for word in rest.split() if not word.startswith("--")]
        found |= dict.fromkeys(sources, target)
    return found


def test_it_is_made_of_instructions_that_are_known_here() -> None:
    assert {name for name, _ in instructions()} == INSTRUCTIONS
    assert instructions()[0][0] == "FROM"


def test_the_base_is_a_slim_debian_by_its_plain_name_with_a_python_that_the_course_takes() -> None:
    (base,) = arguments("FROM")
    match = re.fullmatch(r"python:3\.(\d+)-slim-bookworm", base)
    assert match is not None
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "requires-python"
    ]
    assert wanted == ">=3.11,<3.14"
    assert 11 <= int(match[1]) < 14


def test_what_is_copied_is_there_and_is_what_the_grader_needs() -> None:
    assert set(copied()) == {*FOLDERS, *FILES}
    for source, target in copied().items():
        assert (ROOT / source).exists()
        assert target == ("./" if source in FILES else source)


def test_what_is_copied_is_sent_to_the_builder_and_nothing_else() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    assert lines[0] == "*"
    assert {line[1:] for line in lines if line.startswith("!")} == set(copied())
    after = lines[1 + len(copied()) :]
    assert all(line.startswith("**/") for line in after)  # a later line wins
    assert "**/__pycache__" in after


def test_it_installs_as_the_readme_says_and_runs_what_pdm_knows() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ran = " ".join(arguments("RUN"))
    assert 'pip install "pdm[locked]"' in readme
    assert re.search(r'pip install [^&]*"pdm\[locked\]"', ran)
    assert "\npdm install\n" in readme
    assert arguments("RUN")[-1].startswith("pdm install --frozen-lockfile")
    (entry,) = arguments("ENTRYPOINT")
    assert json.loads(entry) == ["pdm", "run", "grade"]
    assert (
        "grade"
        in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pdm"]["scripts"]
    )


def test_it_has_bubblewrap_and_git_and_leaves_no_lists_of_packages() -> None:
    (apt,) = [rest for rest in arguments("RUN") if "apt-get" in rest]
    assert "apt-get install --yes --no-install-recommends bubblewrap g++ git " in apt
    assert (
        apt.index("apt-get update") < apt.index("apt-get install") < apt.index("rm -rf /var/lib/apt/lists/*")
    )


def test_learners_code_is_not_run_by_root() -> None:
    names = [name for name, _ in instructions()]
    assert arguments("USER") == ["grader"]
    assert names.index("USER") < names.index("COPY") < names.index("ENTRYPOINT")
    assert "useradd --create-home --uid 1000 grader" in arguments("RUN")[0]


def test_the_book_runs_it_with_folders_that_the_grader_is_told_of() -> None:
    page = Page.read(ROOT / "book" / "src" / "instructors.md", "instructors.md")
    (text,) = [fence.text for fence in page.fences if "docker run" in fence.text]
    words = text.replace("\\\n", " ").split()
    assert NAME in words
    mounts = dict(word.strip('"').rsplit(":", 1) for word in words if ":/" in word)
    assert sorted(mounts.values()) == ["/grades", "/submissions"]
    at = words.index("/submissions")
    assert words[at : at + 3] == ["/submissions", "--out", "/grades"]
    options = {word.split("=")[0] for word in words if word.startswith("--")}
    assert {"--security-opt", "--network", "--rm", "--out"} <= options
    assert "TINY_LLM_SEED" in words  # a seed that is drawn inside would be gone with the container


def another_user() -> tuple[str, ...]:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    return ANOTHER


def test_the_files_that_are_copied_are_enough_for_any_user(tmp_path: Path) -> None:
    image = tmp_path / "image"
    for source in copied():
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        image.mkdir(exist_ok=True)
        copy(ROOT / source, image / source)
    as_folder(tmp_path / "class", {"ann/attention.py": b""})
    container = Container(tmp_path / "container", course=image, submissions=tmp_path / "class")
    command = "cd /course && exec $PYTHON -m grading grade /submissions --out /grades --dry-run --seed x"
    ran = container.run(*another_user(), "sh", "-c", command, PYTHON=sys.executable, PYTHONPATH="/course/src")
    assert (ran.returncode, ran.stdout) == (0, "ann  ann  to be graded\n")


def test_landlock_shuts_in_what_a_user_runs_who_has_no_home(tmp_path: Path) -> None:
    usable(LandlockAndSeccomp)
    container = Container(tmp_path / "container", src=ROOT / "src")
    code = (
        "from grading.sandbox.choosing import why_not\n"
        "from grading.sandbox.landlock import LandlockAndSeccomp\n"
        "print(why_not(LandlockAndSeccomp()))"
    )
    ran = container.run(*another_user(), sys.executable, "-c", code, PYTHONPATH="/src")
    assert ran.stdout == "None\n"
