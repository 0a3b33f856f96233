"""Texts of small notebooks for the tiny course, and ways to make and check what comes of them."""

from __future__ import annotations

import io
from typing import Any

import nbformat
from courses import write
from rich.console import Console

from authoring.notebooks.command import check_notebooks, make_notebooks
from authoring.notebooks.making import text_of
from coursekit.manifest import Lesson, load_manifest
from coursekit.paths import Course
from notebooks.copies import notebook_of

BEGIN = (
    "# %% [markdown]\n# # To play with\n\n# %%\n# %load_ext notebooks\n\n# %%\nfrom notebooks import lab\n"
)
AREA = "print('area', lab.shapes.area(lab.shapes.Size(2, 3)))\n"
MEASURED = '# %% tags=["measured"]\nimport time\nprint(time.perf_counter())\n'


def lesson_of(course: Course, name: str = "1.1") -> Lesson:
    return load_manifest(course).lesson(name)


def write_text(course: Course, *parts: str, day: str = "1.1") -> Lesson:
    lesson = lesson_of(course, day)
    write(
        text_of(lesson),
        BEGIN + "".join(f"\n# %%\n{p}" if not p.startswith("# %%") else f"\n{p}" for p in parts),
    )
    return lesson


def make(course: Course, *lessons: Lesson) -> list[str]:
    return make_notebooks(course, lessons, Console(file=io.StringIO()), 1)


def check(course: Course, *lessons: Lesson) -> list[str]:
    return check_notebooks(course, lessons, Console(file=io.StringIO()), 2)


def read(lesson: Lesson) -> Any:
    return nbformat.reads(notebook_of(lesson).read_text(encoding="utf-8"), as_version=4)
