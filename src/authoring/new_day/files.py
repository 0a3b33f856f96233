"""The files of a new day, and the two files that get a line more."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import nbformat

from authoring.drift import Origin
from authoring.new_day.naming import NewDay
from authoring.notebooks.making import as_bytes, notebook_from
from coursekit.editing.source import stub
from coursekit.errors import CourseError
from coursekit.lessons.outline import read_source
from coursekit.manifest import FunctionRef, Lesson, Manifest
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from notebooks.session import WHO

TEMPLATES = files("authoring.new_day") / "templates"
PRINTED = ((f"{WHO[Impl.SOLUTION]}\n",), (), ("[2.0, 3.0, 2.0, 2.0]\n",))
"""By the cells of the notebook."""
_PLACE = re.compile(r"NEW_(NAME|TITLE|MODULE|CHAPTER|WEEK|DAY)\b")
_NUMBER = re.compile(r"(\d+)")


def files_of(course: Course, manifest: Manifest, new: NewDay) -> dict[Path, bytes]:
    """All that the day consists of, and the table of contents and the list of modules with it in them.

    Raises:
        CourseError: a file of the day is there already, or one of the two can't be read or has no place for it.
    """
    made = _made(course, new)
    for path in made:
        if path.exists() or path.is_symlink():
            raise CourseError(
                f"there is {path.relative_to(course.root).as_posix()} already: move it away first"
            )
    package = course.tests / f"week_{new.week}" / "__init__.py"
    if not package.exists():
        made[package] = b""
    starter = course.starter() / f"{new.module}.py"
    record, marks = Origin(course).recorded_with({starter: made[starter]})
    changed = dict([_listed_in_contents(course, manifest, new), _listed_in_modules(course, new)])
    return {**made, **changed, record: marks}


def _made(course: Course, new: NewDay) -> dict[Path, bytes]:
    """The files of the day, as their templates give them."""
    folder = course.lessons / f"week_{new.week}" / f"day_{new.day}"
    lesson, reference = _fill("lesson.toml", new), _fill("reference.py", new)
    notebook = _fill("notebook.py", new)
    texts = {
        folder / "lesson.toml": lesson,
        folder / "mutants.toml": _fill("mutants.toml", new),
        folder / "notebook.py": notebook,
        folder / "notebook.ipynb": _with_outputs(notebook),
        course.solution() / f"{new.module}.py": reference,
        course.starter() / f"{new.module}.py": stub(reference, _stubs(lesson, new)),
        course.tests / f"week_{new.week}" / f"test_day_{new.day}.py": _fill("tests.py", new),
        course.book / "src" / new.chapter: _fill("chapter.md", new),
    }
    return {path: text.encode("utf-8") for path, text in texts.items()}


def _stubs(lesson: str, new: NewDay) -> dict[str, str]:
    """The functions that the lesson asks for, each with what its stub says."""
    return {
        FunctionRef.parse(ref).qualname: f"Week {new.week} Day {new.day} Task {number}: {task['title']}"
        for number, task in enumerate(tomllib.loads(lesson)["task"], start=1)
        for ref in task["implements"]
    }


def _with_outputs(text: str) -> str:
    """The notebook of the text with what its cells print, as if it had been run on the reference."""
    book = notebook_from(text)
    cells = (cell for cell in book.cells if cell["cell_type"] == "code")
    for number, (cell, printed) in enumerate(zip(cells, PRINTED, strict=True), start=1):
        cell["execution_count"] = number
        cell["outputs"] = [nbformat.v4.new_output("stream", name="stdout", text=text) for text in printed]
    return as_bytes(book).decode("utf-8")


def _fill(template: str, new: NewDay) -> str:
    """The template with the day's names in the places that are kept for them."""
    words = {
        "NAME": new.name,
        "TITLE": new.title,
        "MODULE": new.module,
        "CHAPTER": new.chapter,
        "WEEK": str(new.week),
        "DAY": str(new.day),
    }
    text = (TEMPLATES / template).read_bytes().decode("utf-8").replace("\r\n", "\n")
    return _PLACE.sub(lambda place: words[place[1]], text)


def _listed_in_contents(course: Course, manifest: Manifest, new: NewDay) -> tuple[Path, bytes]:
    """The table of contents with the day behind the last one of its week; a new week gets a heading."""
    path, entry = course.book / "src" / "SUMMARY.md", f"- [{new.name} {new.title}]({new.chapter})"
    before = [lesson for lesson in manifest.lessons if lesson.week <= new.week]
    if not before or before[-1].week != new.week:
        entry = f"\n# Week {new.week}\n\n{entry}"
    text = _text(course, path)
    lines = text.split("\n")
    at = next((number for number, line in enumerate(lines) if before and _is_entry(line, before[-1])), None)
    if at is None:
        after = f"Day {before[-1].name}" if before else "any day"
        raise CourseError(
            f"book/src/SUMMARY.md has no entry of {after} to put the new one behind: "
            "`pdm run check --only agreement` says more"
        )
    lines.insert(at + 1, entry)
    return path, _as_before(path, "\n".join(lines))


def _is_entry(line: str, lesson: Lesson) -> bool:
    return line.endswith(f"]({lesson.chapter})")


def _listed_in_modules(course: Course, new: NewDay) -> tuple[Path, bytes]:
    """The list of what `lab` opens, with the new module at its place in the alphabet."""
    path = course.root / "src" / "coursekit" / "lab_modules.py"
    text = _text(course, path)
    found = re.search(r"from tiny_llm import \(\n((?: +\w+,\n)+) +\)", text)
    if found is None:
        raise CourseError("src/coursekit/lab_modules.py has no list `from tiny_llm import (…)` of modules")
    lines = found[1].splitlines()
    indent = lines[0][: -len(lines[0].lstrip())]
    lines = sorted([*lines, f"{indent}{new.module},"], key=_in_the_order_of_imports)
    text = text[: found.start(1)] + "".join(f"{line}\n" for line in lines) + text[found.end(1) :]
    return path, _as_before(path, text)


def _in_the_order_of_imports(line: str) -> list[tuple[int, str]]:
    """The order in which ruff wants names: "rows8" before "rows10"."""
    parts = _NUMBER.split(line.strip(" ,"))
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _text(course: Course, path: Path) -> str:
    return read_source(path, path.relative_to(course.root).as_posix()).replace("\r\n", "\n")


def _as_before(path: Path, text: str) -> bytes:
    """The text with the line ends that the file has."""
    return text.replace("\n", "\r\n" if b"\r\n" in path.read_bytes() else "\n").encode("utf-8")
