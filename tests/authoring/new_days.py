"""The tiny course with a book, for the tests of `pdm run new-day`."""

from __future__ import annotations

from pathlib import Path

from courses import make_course, write

from coursekit.paths import Course

ROOT = Course.find().root
SUMMARY = """# Summary

[Preface](preface.md)

# Week 1: shapes

- [1.1 Rectangles](week_1/day_1.md)
- [1.2 Circles](week_1/day_2.md)

# Week 2: numbers

- [2.1 Counting](week_2/day_1.md)

---

[Names](names.md)
"""
MODULES = """class Modules:
    if TYPE_CHECKING:
        from tiny_llm import (
            counting,
            shapes,
        )

        paged: Paged
"""
LONG = "A title of sixty letters, which is as long as one may be: ok"
TARGETS = (
    "lessons/week_2/day_2/lesson.toml",
    "lessons/week_2/day_2/mutants.toml",
    "lessons/week_2/day_2/notebook.py",
    "lessons/week_2/day_2/notebook.ipynb",
    "solutions/tiny_llm/beams.py",
    "src/tiny_llm/beams.py",
    "tests/week_2/test_day_2.py",
    "book/src/week_2/day_2.md",
)


def make_small(folder: Path) -> Course:
    """The tiny course, with as much of a book and of the tool as a new day is entered in."""
    course = make_course(folder)
    write(course.book / "src" / "SUMMARY.md", SUMMARY)
    write(course.root / "src" / "coursekit" / "lab_modules.py", MODULES)
    return course


def everything(course: Course) -> dict[str, bytes | None]:
    """All files with what they hold, and all folders."""
    return {
        path.relative_to(course.root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in course.root.rglob("*")
    }


def summary(course: Course) -> str:
    return (course.book / "src" / "SUMMARY.md").read_bytes().decode()


def modules(course: Course) -> str:
    return (course.root / "src" / "coursekit" / "lab_modules.py").read_bytes().decode()
