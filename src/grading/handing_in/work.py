"""One package of the learner's, as it is handed in: the files that count, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from coursekit.editing.assembly import generate, package_files
from coursekit.errors import CourseError
from coursekit.lessons.outline import Function, functions, parse, stub_message
from coursekit.manifest import FunctionRef, Lesson, Manifest, Task
from coursekit.paths import Course
from coursekit.tracks import covered


@dataclass(frozen=True)
class Work:
    """The learner's files of one package, by their paths within it.

    ``track`` are the days that can be done in this package. ``files`` are those that count, with "\\n" at the ends
    of their lines; ``starter`` is the package before the learner's first line. ``missing`` files count and are gone;
    ``changed`` files are given, and not as the course has them; ``strangers`` are Python files that the course lacks.
    """

    package: str
    track: tuple[Lesson, ...]
    starter: Mapping[str, bytes]
    files: Mapping[str, bytes]
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    strangers: tuple[str, ...]

    @property
    def over_starter(self) -> dict[str, bytes]:
        """The package as the grader has it: the files that count, and all others from the course."""
        return {**self.starter, **self.files}

    @cached_property
    def damaged(self) -> dict[str, str]:
        """The files that count and are not Python: what is wrong with each, with its line."""
        return {file: str(found) for file, found in self._found.items() if isinstance(found, CourseError)}

    def functions_of(self, task: Task) -> tuple[FunctionRef, ...]:
        """The functions that the task asks for and that this package has: that of MLX has only some."""
        return tuple(ref for ref in task.implements if ref.qualname in self._asked.get(ref.file, ()))

    def unwritten(self, task: Task) -> tuple[FunctionRef, ...]:
        """The task's functions that are stubs, or not there; a damaged file may have any of them."""
        return tuple(ref for ref in self.functions_of(task) if not self._is_written(ref))

    @property
    def begun(self) -> tuple[Lesson, ...]:
        """The days of which some function is written."""
        return tuple(
            lesson
            for lesson in self.track
            if any(len(self.unwritten(task)) < len(self.functions_of(task)) for task in lesson.tasks)
        )

    def _is_written(self, ref: FunctionRef) -> bool:
        found = self._found.get(ref.file, {})
        if isinstance(found, CourseError):
            return True
        return ref.qualname in found and stub_message(found[ref.qualname]) is None

    @cached_property
    def _found(self) -> dict[str, dict[str, Function] | CourseError]:
        return {
            file: _functions(content, f"src/{self.package}/{file}") for file, content in self.files.items()
        }

    @cached_property
    def _asked(self) -> dict[str, set[str]]:
        counted = {*self.files, *self.missing}
        return {file: set(functions(parse(self.starter[file].decode("utf-8"), file))) for file in counted}


def collect(course: Course, manifest: Manifest, package: str) -> Work:
    """Read the learner's package.

    Raises:
        CourseError: a file can't be read.
    """
    starter, folder = generate(course, package, manifest), course.starter(package)
    there = {path.relative_to(folder).as_posix(): path for path in package_files(folder)}
    counted = sorted(
        starter.keys() & {ref.file for task in manifest.on(package).tasks() for ref in task.implements}
    )
    return Work(
        package,
        covered(course, package, manifest),
        starter,
        {file: _read(there[file]) for file in counted if file in there},
        tuple(file for file in counted if file not in there),
        tuple(
            file
            for file in sorted(starter.keys() - set(counted))
            if file not in there or _read(there[file]) != _with_plain_ends(starter[file])
        ),
        tuple(sorted(file for file in there if file.endswith(".py") and file not in starter)),
    )


def _read(path: Path) -> bytes:
    try:
        return _with_plain_ends(path.read_bytes())
    except OSError as error:
        raise CourseError(f"can't read {path}: {error.strerror}") from error


def _with_plain_ends(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n")


def _functions(content: bytes, name: str) -> dict[str, Function] | CourseError:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return CourseError(f"{name} is not UTF-8 text: save it as UTF-8")
    try:
        return {qualname: nodes[-1] for qualname, nodes in functions(parse(text, name)).items()}
    except CourseError as error:
        return error
