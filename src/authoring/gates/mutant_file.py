"""Reads `mutants.toml`: the plausible mistakes, planted in the reference, that a day's tests must notice."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coursekit.backends import Backend
from coursekit.editing.source import function_source
from coursekit.manifest import Lesson, Task
from coursekit.paths import Course
from coursekit.track_files import home

FEWEST = 2  # mutants per task
FEWEST_SAYING = 2  # of them, those that state what their message must say
REQUIRED = ("task", "why", "file", "find", "replace")
OPTIONAL = ("package", "says")


@dataclass(frozen=True)
class Mutant:
    """One mistake: where `find` stands in the package's `file`, `replace` is put; tests of the `track` must see it.

    Text that stands in the file several times is looked for in the task's own functions alone.

    place: file and line of its entry, to name it in messages.
    content: the whole file with the mistake in it.
    says: words that must stand in the first message that a learner with this mistake sees; None where any will do.
    """

    task: Task
    why: str
    package: str
    file: str
    place: str
    content: bytes
    track: str
    says: str | None = None


class MutantFile:
    """One day's `mutants.toml`: `read()` gives the mutants that can be run; `problems` says what is wrong."""

    def __init__(self, course: Course, lesson: Lesson, reference: Mapping[str, Mapping[str, bytes]]) -> None:
        path = lesson.path.with_name("mutants.toml")
        self._path = path
        self._name = path.relative_to(course.root).as_posix()
        self._lesson = lesson
        self._course = course
        self._tasks = {
            backend.package: {task.id: task for task in lesson.on(backend.package).tasks}
            for backend in Backend
        }
        self._reference = reference
        self.problems: list[str] = []

    def read(self) -> list[Mutant]:
        """The mutants of the file that are fit to run."""
        if not self._path.is_file():
            self.problems.append(f"{self._name}: missing; every task needs {FEWEST} mutants or more")
            return []
        text = self._path.read_text(encoding="utf-8")
        try:
            entries = tomllib.loads(text).get("mutant", [])
        except tomllib.TOMLDecodeError as error:
            self.problems.append(f"{self._name}: is not TOML: {error}")
            return []
        lines = [
            1 + text.count("\n", 0, header.start()) for header in re.finditer(r"^\[\[mutant\]\]", text, re.M)
        ]
        places = [f"{self._name}:{line}" for line in lines]
        if len(places) != len(entries):  # headers written in an unusual way
            places = [f"{self._name}: mutant {number}" for number in range(1, len(entries) + 1)]
        self._count(entries)
        mutants = (self._mutant(entry, place) for entry, place in zip(entries, places, strict=True))
        return [mutant for mutant in mutants if mutant is not None]

    def _count(self, entries: list[dict[str, Any]]) -> None:
        if not self._lesson.differs_by_track:
            self._count_tasks(self._lesson, entries)
            return
        for backend in Backend:
            own = [entry for entry in entries if entry.get("package", "tiny_llm") == backend.package]
            self._count_tasks(self._lesson.on(backend.package), own, f" on the track of {backend}")

    def _count_tasks(self, lesson: Lesson, entries: list[dict[str, Any]], where: str = "") -> None:
        counts = Counter(entry.get("task") for entry in entries)
        saying = Counter(entry.get("task") for entry in entries if "says" in entry)
        for task in lesson.tasks:
            place = f"{self._name}: {task.id} ({task.title}){where}"
            if counts[task.id] < FEWEST:
                self.problems.append(f"{place} has {counts[task.id]} mutants, needs {FEWEST} or more")
            elif saying[task.id] < FEWEST_SAYING:
                self.problems.append(
                    f"{place}: {saying[task.id]} of its mutants state what their message says, "
                    f"{FEWEST_SAYING} or more should"
                )

    def _mutant(self, entry: dict[str, Any], place: str) -> Mutant | None:
        if fault := self._fault(entry):
            self.problems.append(f"{place}: {fault}")
            return None
        track = entry.get("package", "tiny_llm")
        source, passage = self._source(entry), self._passage(entry)
        content = source.replace(passage, passage.replace(entry["find"], entry["replace"]))
        try:
            compile(content, entry["file"], "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            self.problems.append(f"{place}: {entry['why']!r} is not Python: {error}")
            return None
        task = self._tasks[track][entry["task"]]
        package = home(self._course, track, entry["file"])
        return Mutant(
            task,
            entry["why"],
            package,
            entry["file"],
            place,
            content.encode("utf-8"),
            track,
            entry.get("says"),
        )

    def _fault(self, entry: dict[str, Any]) -> str | None:
        """What is wrong with an entry, or None."""
        if missing := [key for key in REQUIRED if not isinstance(entry.get(key), str)]:
            return f"{', '.join(missing)}: missing, or not text"
        if unknown := sorted(entry.keys() - {*REQUIRED, *OPTIONAL}):
            return f"unknown key {unknown[0]!r}; known: {', '.join((*REQUIRED, *OPTIONAL))}"
        if "says" in entry and not (isinstance(entry["says"], str) and entry["says"].strip()):
            return "says must be text, and not empty"
        if not entry["why"].strip() or not entry["find"]:
            return "why and find must not be empty"
        track = entry.get("package", "tiny_llm")
        if entry["file"] not in self._reference.get(home(self._course, track, entry["file"]), {}):
            return f"{track} has no file {entry['file']!r}"
        if entry["task"] not in self._tasks[track]:
            return f"there is no {entry['task']!r}; there are: {', '.join(self._tasks[track])}"
        if entry["find"] == entry["replace"]:
            return f"{entry['why']!r} changes nothing: find and replace are equal"
        found = self._passage(entry).count(entry["find"])
        if found != 1:
            return f"{entry['why']!r}: find stands {found} times in {entry['file']}, not once"
        return None

    def _passage(self, entry: dict[str, Any]) -> str:
        """Where `find` is looked for: the whole file, or the only one of the task's functions that has it."""
        source, find = self._source(entry), entry["find"]
        if source.count(find) <= 1:
            return source
        task = self._tasks[entry.get("package", "tiny_llm")][entry["task"]]
        refs = [ref for ref in task.implements if ref.file == entry["file"]]
        own = [text for ref in refs if find in (text := function_source(source, ref.qualname, ref.file))]
        return own[0] if len(own) == 1 else source

    def _source(self, entry: dict[str, Any]) -> str:
        package = home(self._course, entry.get("package", "tiny_llm"), entry["file"])
        content = self._reference[package][entry["file"]]
        # A TOML text has "\n" for every line end.
        return content.decode("utf-8").replace("\r\n", "\n")
