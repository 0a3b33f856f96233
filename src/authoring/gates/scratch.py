"""A copy of the course in a temporary folder, with learner's packages of our choosing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from coursekit.paths import Course

# By package, its files: contents by path relative to the package.
Packages = Mapping[str, Mapping[str, bytes]]

SHARED = ("lessons", "solutions", "tests", "pyproject.toml")


def lay_out(course: Course, folder: Path, packages: Packages) -> Course:
    """Make ``folder`` a course of its own: lessons, reference and tests of ``course``, and these packages as `src`.

    What both courses share is linked, or copied where the system makes no links.
    """
    for name in SHARED:
        _share(course.root / name, folder / name)
    copy = Course(folder)
    for package, files in packages.items():
        for file, content in files.items():
            path = copy.starter(package) / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return copy


def _share(original: Path, place: Path) -> None:
    if not original.exists():
        return
    try:
        os.symlink(original, place, target_is_directory=original.is_dir())
    except OSError:  # Windows gives the right to make links to developers only
        if original.is_dir():
            shutil.copytree(original, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(original, place)
