"""Puts functions of the starter or of the reference into the learner's files; what reset and catch-up share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

from coursekit.editing.assembly import assemble_file
from coursekit.editing.repair import add_function, add_names
from coursekit.editing.source import replace_function
from coursekit.lessons.outline import fingerprint, functions, parse, read_source, stub_message, used_names
from coursekit.lessons.package import Package
from coursekit.manifest import FunctionRef, Manifest
from coursekit.paths import Course
from coursekit.track_files import home, solution_file, starter_file


@dataclass
class Transplant:
    """Changes to the learner's files, worked out and not yet written.

    contents: the new content of every file that changes.
    added: what the learner's files lacked and the new functions need, as "src/tiny_llm/attention.py: math".
    """

    contents: dict[Path, bytes] = field(default_factory=dict)
    added: list[str] = field(default_factory=list)


class Learner:
    """The learner's copy of one package, beside the starter and the reference."""

    def __init__(self, course: Course, package: str, manifest: Manifest) -> None:
        self.package = package
        self._course = course
        self._manifest = manifest.on(package)
        self._starter: dict[str, str] = {}
        self._own = Package(course.root, partial(starter_file, course, package))
        self._reference = Package(course.root, partial(solution_file, course, package))

    def should_have(self, ref: FunctionRef) -> bool:
        """Whether the function is part of this track; that of MLX has only some."""
        return self._reference.find(ref) is not None

    def has_stub(self, ref: FunctionRef) -> bool:
        """Whether the function is there and is a stub still.

        Raises:
            CourseError: the learner's file is not Python.
        """
        found = self._own.find(ref)
        return found is not None and stub_message(found) is not None

    def has_code(self, ref: FunctionRef) -> bool:
        """Whether the function is there and is no stub any more.

        Raises:
            CourseError: the learner's file is not Python.
        """
        found = self._own.find(ref)
        return found is not None and stub_message(found) is None

    def mark(self, ref: FunctionRef) -> str | None:
        """The fingerprint of the function; None where it is not there.

        Raises:
            CourseError: the learner's file is not Python.
        """
        found = self._own.find(ref)
        return None if found is None else fingerprint(found)

    def path(self, file: str) -> Path:
        return starter_file(self._course, self.package, file)

    def text(self, file: str) -> str:
        """The learner's file; the starter's where there is none."""
        path = self.path(file)
        return read_source(path, self._name(path)) if path.is_file() else self.starter_text(file)

    def starter_text(self, file: str) -> str:
        if file not in self._starter:
            package = home(self._course, self.package, file)
            content = assemble_file(self._course, self._manifest, package, file)
            self._starter[file] = content.decode("utf-8")
        return self._starter[file]

    def reference_text(self, file: str) -> str:
        path = solution_file(self._course, self.package, file)
        return read_source(path, self._name(path))

    def put_stubs(self, refs: Iterable[FunctionRef]) -> Transplant:
        """Work out the files with these functions as the starter has them.

        Raises:
            CourseError: a file is not Python, or a name means something else there.
        """
        return self._transplant(refs, self.starter_text)

    def put_reference(self, refs: Iterable[FunctionRef]) -> Transplant:
        """Work out the files with these functions as the reference has them, each with a comment that says so.

        Raises:
            CourseError: a file is not Python, or a name means something else there.
        """
        return self._transplant(refs, self.reference_text, self._loan)

    def _loan(self, ref: FunctionRef) -> str | None:
        """What stands in a borrowed function, for its reader."""
        task = self._manifest.owner(ref)
        if task is None:
            return None
        return f"# Borrowed from the reference: pdm run reset {task.name} puts the stub back."

    def _transplant(
        self,
        refs: Iterable[FunctionRef],
        donor: Callable[[str], str],
        comment: Callable[[FunctionRef], str | None] = lambda ref: None,
    ) -> Transplant:
        result = Transplant()
        for file, group in groupby(sorted(refs), key=lambda ref: ref.file):
            name, starter = self._name(self.path(file)), self.starter_text(file)
            text = self.text(file)
            result.added += [] if self.path(file).is_file() else [name]
            for ref in group:
                text, added = _put(text, ref.qualname, starter, donor(file), name, comment(ref))
                result.added += [f"{name}: {what}" for what in added]
            parse(text, name)
            result.contents[self.path(file)] = text.encode("utf-8")
        return result

    def _name(self, path: Path) -> str:
        return path.relative_to(self._course.root).as_posix()


def _put(
    text: str, qualname: str, starter: str, donor: str, name: str, comment: str | None
) -> tuple[str, list[str]]:
    """One function of the donor in the learner's text, and what else had to be added for it."""
    text, added = add_function(text, qualname, starter, name)
    text = replace_function(text, qualname, donor, name, comment)
    needed = used_names(functions(parse(donor, name))[qualname][-1])
    text, names = add_names(text, needed, starter, name)
    return text, added + names
