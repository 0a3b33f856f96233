"""The zip to hand in: the same code gives the same bytes, on every machine."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.lessons.outline import read_source
from coursekit.paths import Course
from grading import fixed_zip
from grading.handing_in.work import Work

ABOUT = "submission.json"
FORMAT = "tiny-llm submission 1"


def pack(course: Course, works: Sequence[Work]) -> bytes:
    """The files that count, as ``src/tiny_llm/…``, and ``submission.json`` about them, as a zip file.

    Nothing in it says who the learner is, when the code was written, or what its tests have given.

    Raises:
        CourseError: the course's version can't be read.
    """
    files = {f"src/{work.package}/{file}": work.files[file] for work in works for file in work.files}
    about = {
        "format": FORMAT,
        "course": version(course),
        "days": {work.package: [lesson.name for lesson in work.begun] for work in works},
        "files": {name: sha256(files[name]).hexdigest() for name in sorted(files)},
    }
    return fixed_zip.zip_files({ABOUT: (json.dumps(about, indent=1) + "\n").encode("utf-8"), **files})


def require_ours(path: Path) -> None:
    """Refuse a place where something lies that is no submission of ours.

    Raises:
        CourseError: there is a folder, or a file of another kind; or the file can't be read.
    """
    what, why_zip = "a submission of this course", "by which the grader knows it"
    fixed_zip.require_ours(path, ABOUT, FORMAT, what, why_zip)


def version(course: Course) -> str:
    """The course's version.

    Raises:
        CourseError: it can't be read.
    """
    text = read_source(course.root / "pyproject.toml", "pyproject.toml")
    try:
        return str(tomllib.loads(text)["project"]["version"])
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise CourseError(f"pyproject.toml says no version of the course: {error}") from error
