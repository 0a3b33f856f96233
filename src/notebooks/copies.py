"""The learner's own copies of the notebooks: what is tried out in them never touches the course's files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coursekit.errors import CourseError
from coursekit.files import write_text
from coursekit.manifest import Lesson
from coursekit.paths import Course

FOLDER = "play"
SOURCE = "source"
"""In a notebook's metadata, under `tiny_llm`: the hash of the text that it was made from."""


def notebook_of(lesson: Lesson) -> Path:
    """The course's notebook of a day."""
    return lesson.path.with_name("notebook.ipynb")


def copy_of(course: Course, lesson: Lesson) -> Path:
    """Where the learner's copy lies."""
    return course.root / FOLDER / f"week_{lesson.week}_day_{lesson.day}.ipynb"


def prepare(course: Course, lesson: Lesson, fresh: bool) -> tuple[Path, str]:
    """Make the learner's copy, without outputs, unless there is one.

    Args:
        course: where.
        lesson: the day.
        fresh: make a new one in any case; the one that is there is kept under another name.

    Returns:
        the copy, and what to tell about it.

    Raises:
        CourseError: the day has no notebook, or a file can't be read or written.
    """
    original, copy = notebook_of(lesson), copy_of(course, lesson)
    if not original.is_file():
        raise CourseError(f"Day {lesson.name} has no notebook: {_name(course, original)} is not there")
    content = _read(course, original)
    if copy.is_file() and not fresh:
        if _source(_read(course, copy)) == _source(content):
            return copy, "as you left it"
        return copy, f"as you left it; the course's has changed since: `pdm run lab {lesson.name} --fresh`"
    text = json.dumps(without_outputs(content), indent=1, ensure_ascii=False) + "\n"
    if not copy.is_file():
        write_text(copy, text)
        return copy, "a fresh copy"
    with _kept(course, copy) as kept:
        write_text(copy, text)
    return copy, f"a fresh copy; yours is now {_name(course, kept)}"


def without_outputs(content: dict[str, Any]) -> dict[str, Any]:
    """A notebook whose cells have not been run: an answer that is there already spoils the question."""
    cells = [
        {**cell, "outputs": [], "execution_count": None} if cell["cell_type"] == "code" else cell
        for cell in content["cells"]
    ]
    return {**content, "cells": cells}


def _read(course: Course, path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        content["cells"], _source(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        again = f"`git restore {_name(course, path)}` brings it back"
        if path.parent.name == FOLDER:
            again = "--fresh makes a new one, and keeps this under another name"
        raise CourseError(f"{_name(course, path)} can't be read as a notebook: {again}") from error
    return dict(content)


def _source(content: dict[str, Any]) -> object:
    return content["metadata"].get("tiny_llm", {}).get(SOURCE)


@contextmanager
def _kept(course: Course, copy: Path) -> Iterator[Path]:
    """Within it the copy has another name; it gets its own again where what is to take its place can't be made."""
    kept = _unused(copy)
    try:
        copy.rename(kept)
    except OSError as error:
        raise CourseError(
            f"{_name(course, copy)} can't be kept under another name: {error.strerror}"
        ) from error
    try:
        yield kept
    except BaseException:
        kept.rename(copy)
        raise


def _unused(path: Path) -> Path:
    """A name beside it that no file has yet."""
    number = 1
    while (other := path.with_stem(f"{path.stem}-{number}")).exists():
        number += 1
    return other


def _name(course: Course, path: Path) -> str:
    return path.relative_to(course.root).as_posix()
