"""Where the files of the two tracks of the course lie: which each has to itself, and which both share."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from coursekit.backends import Backend
from coursekit.lessons.outline import parse, read_source
from coursekit.paths import Course


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


@cache
def _shared(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    for node in parse(read_source(path, path.name), path.name).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SHARED":
            return frozenset(f"{module.replace('.', '/')}.py" for module in ast.literal_eval(node.value))
    return frozenset()
