"""The learner's package, made from the reference: the same files, the bodies of tasks replaced by stubs."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from coursekit.editing.source import stub
from coursekit.lessons.outline import functions, parse, read_source
from coursekit.manifest import FunctionRef, Manifest
from coursekit.paths import Course


def generate(course: Course, package: str, manifest: Manifest) -> dict[str, bytes]:
    """The untouched starter of a package: contents by path relative to the package."""
    return assemble(course, manifest, package, frozenset())


def assemble(
    course: Course, manifest: Manifest, package: str, solved: Container[FunctionRef]
) -> dict[str, bytes]:
    """The reference with stubs for every task's function that is not in `solved`.

    Given code and files that are not Python are as they are in the reference. What a second package lacks of
    the first is left out: it takes those modules from the first.

    Returns:
        Contents by path relative to the package, in order.

    Raises:
        CourseError: a file of the reference can't be read or is not Python.
    """
    folder = course.solution(package)
    files = [path.relative_to(folder).as_posix() for path in package_files(folder)]
    return {file: assemble_file(course, manifest, package, file, solved) for file in files}


def assemble_file(
    course: Course, manifest: Manifest, package: str, file: str, solved: Container[FunctionRef] = frozenset()
) -> bytes:
    """One file of `assemble`.

    Raises:
        CourseError: the file can't be read or is not Python.
    """
    path = course.solution(package) / file
    messages = {
        ref.qualname: task.stub_message
        for task in manifest.on(package).tasks()
        for ref in task.implements
        if ref.file == file and ref not in solved
    }
    return _stubbed(course, path, messages) if messages else path.read_bytes()


def package_files(folder: Path) -> list[Path]:
    """The files of a package, in order, without what Python, editors and systems leave behind."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and not _is_left_behind(path.relative_to(folder))
    )


def _is_left_behind(path: Path) -> bool:
    return path.suffix == ".pyc" or any(part == "__pycache__" or part.startswith(".") for part in path.parts)


def _stubbed(course: Course, path: Path, messages: dict[str, str]) -> bytes:
    name = path.relative_to(course.root).as_posix()
    source = read_source(path, name)
    there = functions(parse(source, name))
    return stub(source, {q: m for q, m in messages.items() if q in there}, name).encode("utf-8")
