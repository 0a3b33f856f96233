"""The files of the course that an autograder needs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from coursekit.editing.assembly import package_files
from coursekit.errors import CourseError
from coursekit.paths import Course

FOLDERS = ("lessons", "solutions", "src", "tests")
FILES = ("LICENSE", "README.md", "pdm.lock", "pdm.toml", "pyproject.toml")
"""What `pdm install` reads."""


def course_files(course: Course) -> dict[str, bytes]:
    """The content of each file, by its path within the course.

    In a git checkout these are the files that git knows and new ones that it doesn't ignore, as they are now;
    elsewhere all but what Python and editors leave behind.

    Raises:
        CourseError: a file can't be read.
    """
    names = _by_git(course.root) or _by_looking(course)
    contents = {}
    for name in sorted(set(names)):
        path = course.root / name
        if not path.is_file():
            continue  # git knows it, and it was deleted
        try:
            contents[name] = path.read_bytes()
        except OSError as error:
            raise CourseError(f"can't read {name}: {error.strerror}") from error
    return contents


def _by_git(root: Path) -> list[str]:
    """What git lists; nothing where there is no git, or no checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *FOLDERS, *FILES]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]


def _by_looking(course: Course) -> list[str]:
    found = [path for folder in FOLDERS for path in package_files(course.root / folder)]
    return [*(path.relative_to(course.root).as_posix() for path in found), *FILES]
