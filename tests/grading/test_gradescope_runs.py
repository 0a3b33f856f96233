"""The autograder's zip does its work in a container that has nothing of this checkout."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from class_folders import as_folder
from containers import Container
from courses import SHAPES, make_course

from coursekit.paths import Course
from grading.gradescope.packing import write_autograder
from grading.reports.gradescope import FAILED
from grading.running.asking import Asked

SEED = "xyzzy-secret"
POLICY = """[late]
percent_per_day = 10
[[day]]
name = "1.1"
weight = 2
due = 2026-01-31T12:00:00Z
[[extension]]
learner = "bob@example.org"
days = 7
"""


def metadata(
    email: str = "ann@example.org", when: str = "2026-02-01T11:00:00.365935+00:00"
) -> dict[str, Any]:
    return {"id": 1, "created_at": when, "users": [{"email": email, "id": 7, "name": "Ann"}]}


class Gradescope:
    """The folder /autograder, in which the zip is unpacked and set up once."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "autograder"
        course = course_with_tools(home / "course")
        (home / "policy.toml").write_text(POLICY, encoding="utf-8")
        asked = Asked(Path(), week=1, policy=home / "policy.toml", seed=SEED)
        packed = write_autograder(course, asked, home / "out.zip")
        assert (packed.days, packed.points) == (("1.1",), 30)
        with zipfile.ZipFile(home / "out.zip") as archive:
            archive.extractall(self.folder / "source")
        shutil.copy(self.folder / "source/run_autograder", self.folder)  # as Gradescope does
        (self.folder / "run_autograder").chmod(0o755)
        self.container = Container(home, autograder=self.folder)
        self.said = self.container.run("bash", "/autograder/source/setup.sh", GRADER_PYTHON=sys.executable)

    def grade(self, files: dict[str, bytes], about: object = None) -> tuple[dict[str, Any], str]:
        """The results of a submission, and what the autograder printed."""
        for name in ("submission", "results"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        as_folder(self.folder / "submission", files)
        text = json.dumps(metadata() if about is None else about)
        (self.folder / "submission_metadata.json").write_text(text, encoding="utf-8")
        ran = self.container.run("/autograder/run_autograder")
        assert ran.returncode == 0, ran.stdout
        return json.loads((self.folder / "results/results.json").read_bytes()), ran.stdout


def course_with_tools(root: Path) -> Course:
    """The tiny course, which has the real tools in it."""
    course, source = make_course(root), Course.find().root / "src"
    for room in ("coursekit", "grading"):
        shutil.copytree(source / room, root / "src" / room, ignore=shutil.ignore_patterns("__pycache__"))
    return course


@pytest.fixture(scope="module")
def gradescope(tmp_path_factory: pytest.TempPathFactory) -> Gradescope:
    gradescope = Gradescope(tmp_path_factory.mktemp("gradescope"))
    assert gradescope.said.returncode == 0, gradescope.said.stdout
    return gradescope


def hidden(document: dict[str, Any]) -> str:
    """What only the instructor sees."""
    (test,) = [test for test in document["tests"] if test["visibility"] == "hidden"]
    return str(test["output"])


def test_a_submission_gets_its_points_less_what_lateness_costs(gradescope: Gradescope) -> None:
    document, said = gradescope.grade({"shapes.py": SHAPES.encode()})
    assert (document["score"], document["output"]) == (
        27,
        "27 of 30 points\nDay 1.1: 1 day late, −3 points",
    ), said
    tests = [test for test in document["tests"] if test["visibility"] == "visible"]
    assert [(test["number"], test["score"], test["max_score"]) for test in tests] == [
        ("1.1.1", 18, 20),
        ("1.1.2", 9, 10),
    ]
    assert hidden(document).startswith("isolation: ")
    assert SEED not in json.dumps(document) + said


def test_wrong_code_fails_and_an_extension_of_the_policy_counts(gradescope: Gradescope) -> None:
    wrong = SHAPES.replace("size.width * size.height", "size.width")
    document, _ = gradescope.grade({"src/tiny_llm/shapes.py": wrong.encode()}, metadata("bob@example.org"))
    assert (document["score"], document["output"]) == (10, "10 of 30 points")
    assert document["tests"][0]["output"].startswith("wrong: ")


def test_a_submission_without_a_file_that_counts_is_refused_with_the_reason(gradescope: Gradescope) -> None:
    document, _ = gradescope.grade({"notes.txt": b""})
    assert document["score"] == 0
    assert document["output"].endswith("it holds no file of tiny_llm that counts")


def test_without_metadata_the_code_is_graded_and_the_instructor_is_told(gradescope: Gradescope) -> None:
    document, _ = gradescope.grade({"shapes.py": SHAPES.encode()}, "no object")
    assert document["score"] == 30
    assert "submission_metadata.json is not as expected" in hidden(document)
    assert "the time of the submission isn't known" in hidden(document)


def test_where_there_is_no_isolation_the_instructor_is_told(gradescope: Gradescope) -> None:
    choosing = gradescope.folder / "source/course/src/grading/sandbox/choosing.py"
    text = choosing.read_text(encoding="utf-8")
    choosing.write_text(text.replace("= (Bubblewrap, LandlockAndSeccomp)", "= ()"), encoding="utf-8")
    try:
        document, _ = gradescope.grade({"shapes.py": SHAPES.encode()})
    finally:
        choosing.write_text(text, encoding="utf-8")
    assert document["score"] == 27
    assert hidden(document).startswith("isolation: limits only")
    assert "nothing kept the code from the tests" in hidden(document)
    shown = [test["output"] for test in document["tests"] if test["visibility"] == "visible"]
    assert "isolation" not in " ".join(shown)


def test_a_grader_that_fails_says_that_it_is_not_the_code(gradescope: Gradescope) -> None:
    settings = gradescope.folder / "source/autograder.json"
    text = settings.read_text(encoding="utf-8")
    settings.write_text("{}", encoding="utf-8")
    try:
        document, _ = gradescope.grade({"shapes.py": SHAPES.encode()})
    finally:
        settings.write_text(text, encoding="utf-8")
    assert (document["score"], document["output"]) == (0, FAILED)
    assert "autograder.json can't be read" in hidden(document)


def test_a_python_that_does_not_start_leaves_results_as_well(gradescope: Gradescope) -> None:
    python = gradescope.folder / "source/python"
    text = python.read_text(encoding="utf-8")
    python.write_text("/nowhere/python", encoding="utf-8")
    try:
        document, said = gradescope.grade({"shapes.py": SHAPES.encode()})
    finally:
        python.write_text(text, encoding="utf-8")
    assert (document["score"], document["output"]) == (0, FAILED)
    assert "it ended before it could say why" in hidden(document)
    assert "exit code 127" in said
