"""The two tracks of the course: which files of each a learner writes, and which days the MLX one covers."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from coursekit.backends import Backend
from coursekit.lessons.outline import functions, parse, read_source
from coursekit.manifest import Lesson, Manifest
from coursekit.paths import Course


def covers(course: Course, package: str, lesson: Lesson) -> bool:
    """Whether the track of ``package`` has a reference of every function that the day asks for."""
    if package == Backend.TORCH.package:
        return True
    return all(
        ref.qualname in _defined(solution_file(course, package, ref.file))
        for ref in lesson.on(package).functions
    )


def home(course: Course, package: str, file: str) -> str:
    """The package in which the track of ``package`` has ``file``: its own, or that of both tracks."""
    return Backend.TORCH.package if file in shared_files(course, package) else package


def starter_file(course: Course, package: str, file: str) -> Path:
    """Where the learner of a track writes ``file``."""
    return course.starter(home(course, package, file)) / file


def solution_file(course: Course, package: str, file: str) -> Path:
    """Where the reference of a track has ``file``."""
    return course.solution(home(course, package, file)) / file


def shared_files(course: Course, package: str) -> frozenset[str]:
    """The files that serve both tracks: the modules that the MLX package's ``SHARED`` names."""
    if package == Backend.TORCH.package:
        return frozenset()
    return _shared(course.solution(package) / "__init__.py")


def covered(course: Course, package: str, manifest: Manifest) -> tuple[Lesson, ...]:
    """The days of ``manifest`` that ``package`` covers, in order, as its track has them."""
    return tuple(lesson for lesson in manifest.on(package).lessons if covers(course, package, lesson))


def track_refusal(course: Course, package: str, manifest: Manifest) -> str:
    """What to tell someone who asks for a day that the track does not cover."""
    days = covered(course, package, manifest)
    if not days:
        return "the MLX track covers no day of this course yet: leave --backend mlx out"
    return f"the MLX track covers days {name_days(days, manifest)}: leave --backend mlx out for the others"


def name_days(days: tuple[Lesson, ...], manifest: Manifest) -> str:
    """Days that follow one another joined: "1.1–1.4, 2.4"."""
    runs: list[list[Lesson]] = []
    for lesson in manifest.lessons:
        if lesson not in days:
            runs.append([])
        elif runs:
            runs[-1].append(lesson)
        else:
            runs.append([lesson])
    return ", ".join(run[0].name if len(run) == 1 else f"{run[0].name}–{run[-1].name}" for run in runs if run)


@cache
def _shared(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    for node in parse(read_source(path, path.name), path.name).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SHARED":
            return frozenset(f"{module.replace('.', '/')}.py" for module in ast.literal_eval(node.value))
    return frozenset()


@cache
def _defined(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    return frozenset(functions(parse(read_source(path, path.name), path.name)))
