"""What decides on points, as short hashes: where they are the same, a submission need not be graded again."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from coursekit.backends import Backend
from coursekit.editing.assembly import package_files
from coursekit.errors import CourseError
from coursekit.manifest import Lesson
from coursekit.paths import Course

TOOLS = ("coursekit", "grading")
WITHOUT_POINTS = ("src/grading/reports/", "src/grading/policy/", "src/grading/gradescope/")
"""They come after the grading, or around it."""
LIBRARIES = "pdm.lock"
_SALT = b"tiny-llm: the seed of a class"


def course_fingerprint(course: Course, lessons: Sequence[Lesson], backend: Backend) -> str:
    """A hash of the days that are graded, and of all on the instructor's side that decides on their points.

    That are the tests, the lessons, the reference (of which the starter is made), the tool's own code, the list of
    libraries, and the version of Python.

    Raises:
        CourseError: a file can't be read.
    """
    digest = hashlib.sha256()
    python = f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}"
    about = [backend.value, python, *(lesson.name for lesson in lessons)]
    for part in about:
        digest.update(hashlib.sha256(part.encode()).digest())
    for path in _deciding(course):
        name = path.relative_to(course.root).as_posix()
        try:
            content = path.read_bytes()
        except OSError as error:
            raise CourseError(f"can't read {name}: {error.strerror}") from error
        for data in (name.encode("utf-8", "surrogateescape"), content):
            digest.update(hashlib.sha256(data).digest())
    return digest.hexdigest()


def draw_fingerprint(seed: str) -> str:
    """A hash of the instructor's seed, slow to compute: whoever reads it can't try out many seeds."""
    return hashlib.scrypt(
        seed.encode("utf-8", "surrogateescape"), salt=_SALT, n=2**14, r=8, p=1, dklen=16
    ).hex()


def _deciding(course: Course) -> Iterator[Path]:
    folders = [course.lessons, course.tests, course.root / "solutions"]
    for folder in [*folders, *(course.root / "src" / tool for tool in TOOLS)]:
        for path in package_files(folder):
            if not path.relative_to(course.root).as_posix().startswith(WITHOUT_POINTS):
                yield path
    if (course.root / LIBRARIES).is_file():
        yield course.root / LIBRARIES
