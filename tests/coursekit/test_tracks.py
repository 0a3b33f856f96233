"""The two tracks: modules that serve both, and where a learner of each writes what."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from courses import make_course, write_solution

from coursekit.backends import Backend
from coursekit.editing.transplant import Learner
from coursekit.learner.standing import Standing, Survey
from coursekit.learner.state import State
from coursekit.manifest import FunctionRef, load_manifest
from coursekit.paths import Course
from coursekit.track_files import home, shared_files, solution_file, starter_file
from coursekit.tracks import covered, covers, name_days

MLX = Backend.MLX.package
FRAMEWORKS = {"torch", "mlx", "numba", "triton"}
SHARING = '"""Written once."""\n\nSHARED = ("shapes", "paged.pool")\n'


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """The tiny course, whose MLX track shares `shapes`."""
    course = make_course(tmp_path)
    write_solution(course, "__init__.py", SHARING, MLX)
    return course


def test_a_shared_file_is_the_first_packages_and_the_others_are_the_tracks_own(course):
    assert shared_files(course, MLX) == {"shapes.py", "paged/pool.py"}
    assert home(course, MLX, "shapes.py") == "tiny_llm"
    assert home(course, MLX, "counting.py") == MLX
    assert starter_file(course, MLX, "paged/pool.py") == course.starter() / "paged" / "pool.py"
    assert solution_file(course, MLX, "counting.py") == course.solution(MLX) / "counting.py"


def test_the_torch_track_shares_nothing_and_has_all(course):
    assert shared_files(course, "tiny_llm") == frozenset()
    assert starter_file(course, "tiny_llm", "shapes.py") == course.starter() / "shapes.py"


def test_a_package_that_names_no_shared_modules_has_none(tmp_path):
    course = make_course(tmp_path)
    assert shared_files(course, MLX) == frozenset()
    (course.solution(MLX) / "__init__.py").unlink()
    assert shared_files(make_course(tmp_path / "other"), MLX) == frozenset()


def test_a_day_whose_functions_are_shared_is_covered(course):
    manifest = load_manifest(course)
    shapes = {
        lesson.name for lesson in manifest.lessons if {r.file for r in lesson.functions} == {"shapes.py"}
    }
    assert shapes
    assert {lesson.name for lesson in covered(course, MLX, manifest)} == shapes


def test_a_day_with_a_function_that_neither_has_is_not_covered(course):
    manifest = load_manifest(course)
    assert not covers(course, MLX, manifest.lesson("2.1"))
    assert covers(course, "tiny_llm", manifest.lesson("2.1"))


def test_the_learner_of_the_mlx_track_writes_shared_code_in_the_first_package(course):
    manifest = load_manifest(course)
    learner = Learner(course, MLX, manifest)
    ref = next(ref for task in manifest.tasks() for ref in task.implements if ref.file == "shapes.py")
    assert learner.should_have(ref)
    assert learner.has_stub(ref)
    plan = learner.put_reference([ref])
    assert set(plan.contents) == {course.starter() / "shapes.py"}


def test_the_standing_of_shared_code_is_that_of_the_first_package(course):
    manifest = load_manifest(course)
    task = next(task for task in manifest.tasks() if {ref.file for ref in task.implements} == {"shapes.py"})
    plan = Learner(course, "tiny_llm", manifest).put_reference(task.implements)
    for path, content in plan.contents.items():
        path.write_bytes(content)
    days = Survey(course, manifest, State.load(course), MLX).days
    assert {each: standing for day in days for each, standing in day.tasks.items()}[task] is Standing.BEGUN


def test_every_shared_module_of_the_course_is_there_and_imports_no_framework():
    course = Course.find()
    files = shared_files(course, MLX)
    assert files
    for file in files:
        tree = ast.parse((course.solution() / file).read_text(encoding="utf-8"))
        modules = {
            name.partition(".")[0]
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not modules & FRAMEWORKS, f"{file} imports {modules & FRAMEWORKS}"
        assert not (course.solution(MLX) / file).exists(), f"{file} is in both packages"


def test_both_packages_have_the_same_names_at_the_seam():
    course = Course.find()
    names = []
    for package in ("tiny_llm", MLX):
        tree = ast.parse((course.solution(package) / "arrays.py").read_text(encoding="utf-8"))
        (there,) = [
            ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        names.append(there)
    assert names[0] == names[1]


@pytest.mark.parametrize(("backend", "wanted"), [("torch", "tiny_llm"), ("mlx", MLX), (None, "tiny_llm")])
def test_the_variable_decides_whose_modules_are_imported(course, backend, wanted):
    variables = {name: value for name, value in os.environ.items() if name != "TINY_LLM_BACKEND"}
    variables |= {"PYTHONPATH": str(course.solution().parent)}
    variables |= {} if backend is None else {"TINY_LLM_BACKEND": backend}
    code = "from tiny_llm import counting, shapes; print(counting.__file__, shapes.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables, timeout=60, check=True
    )
    assert [Path(name).parent.name for name in ran.stdout.split()] == [wanted, "tiny_llm"]


def test_days_that_follow_one_another_are_named_as_a_run(course):
    manifest = load_manifest(course)
    assert name_days(manifest.lessons, manifest).count("–") == 1
    assert name_days((), manifest) == ""


def test_a_function_of_neither_package_is_not_asked_for(course):
    learner = Learner(course, MLX, load_manifest(course))
    assert not learner.should_have(FunctionRef("nowhere.py", "nothing"))
