"""Reads one `lesson.toml` and notes all that is wrong with it, with the line where it stands."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.lessons.lesson import TEST_SECONDS, FunctionRef, Lesson, Task
from coursekit.lessons.outline import read_source
from coursekit.lessons.toml_lines import TomlLines
from coursekit.paths import Course

HINTS = 3
LESSON_KEYS = {"title", "goal", "chapter", "stage", "needs", "seconds", "task"}
TASK_KEYS = {"id", "title", "points", "implements", "hints", "seconds", "shortcuts", "mlx", "mlx_hints"}
DAY = re.compile(r"(\d+)\.(\d+)")
DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")


@dataclass(frozen=True, order=True)
class Problem:
    """Something wrong at a line of a file."""

    file: str
    line: int
    message: str = ""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def saying(self, message: str) -> Problem:
        return replace(self, message=message)

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@dataclass(frozen=True)
class Claim:
    """A task's claim to a function of a track, and where it stands."""

    ref: FunctionRef
    at: Problem
    package: str = Backend.TORCH.package


def day_folders(course: Course) -> Iterator[tuple[int, int, Path]]:
    """Week, day and path of every `lessons/week_W/day_D/lesson.toml`, in order."""
    found = []
    for path in course.lessons.glob("week_*/day_*/lesson.toml"):
        match = re.fullmatch(r"week_(\d+)/day_(\d+)/lesson.toml", path.relative_to(course.lessons).as_posix())
        if match:
            found.append((int(match[1]), int(match[2]), path))
    yield from sorted(found)


class LessonFile:
    """One `lesson.toml`: `read()` gives the lesson; `problems`, `claims` and `needed` days fill up as it reads."""

    def __init__(self, course: Course, week: int, day: int, path: Path) -> None:
        self.week, self.day, self.path = week, day, path
        self.name = path.relative_to(course.root).as_posix()
        self.problems: list[Problem] = []
        self.claims: list[Claim] = []
        self.needed: list[tuple[str, Problem]] = []

    def read(self) -> Lesson | None:
        """The lesson, or None where the file can't be one; what is wrong is in `problems`."""
        text = read_source(self.path, self.name).replace("\r\n", "\n")
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r"at line (\d+)", str(error))
            self._note(int(found[1]) if found else text.count("\n") + 1, f"is not TOML: {error}")
            return None
        self._lines = TomlLines(text)
        self._refuse_unknown_keys(table, LESSON_KEYS, None)
        title, goal, chapter = (self._text(table, key, None) for key in ("title", "goal", "chapter"))
        stage = self._text(table, "stage", None) if "stage" in table else None
        if chapter and not re.fullmatch(r"[\w/]+\.md", chapter):
            self._note(
                self._lines.of("chapter"),
                f"chapter is {chapter!r}: give a path under book/src, such as week_1/day_3.md",
            )
        needs = self._needs(table) if "needs" in table else None
        seconds = self._whole_number(table, "seconds", None, TEST_SECONDS)
        tasks = [self._task(entry, index, seconds) for index, entry in enumerate(self._task_tables(table))]
        if self.problems:
            return None
        done = tuple(task for task in tasks if task)
        return Lesson(self.week, self.day, title, goal, chapter, done, self.path, stage, needs)

    def _needs(self, table: dict[str, Any]) -> tuple[str, ...]:
        """The days that the day needs; that they are earlier ones is checked here, that they exist is not."""
        names = self._strings(table, "needs", None, may_be_empty=True)
        for item, name in enumerate(names):
            match = DAY.fullmatch(name)
            if match is None or (int(match[1]), int(match[2])) >= (self.week, self.day):
                line = self._lines.of("needs", None, item)
                self._note(line, f"needs {name!r}: name an earlier day, for example 1.1")
            else:
                self.needed.append((name, Problem(self.name, self._lines.of("needs", None, item))))
        return tuple(names)

    def _task_tables(self, table: dict[str, Any]) -> list[dict[str, Any]]:
        entries = table.get("task", [])
        if (
            not isinstance(entries, list)
            or not entries
            or not all(isinstance(entry, dict) for entry in entries)
        ):
            self._note(self._lines.of("task"), "has no tasks: add a [[task]]")
            return []
        return entries

    def _task(self, table: dict[str, Any], index: int, seconds: int) -> Task | None:
        before = len(self.problems)
        self._refuse_unknown_keys(table, TASK_KEYS, index)
        task_id, title = self._text(table, "id", index), self._text(table, "title", index)
        if task_id and task_id != f"task_{index + 1}":
            self._note(
                self._lines.of("id", index),
                f"id is {task_id!r}: tasks are numbered in order, so task_{index + 1}",
            )
        points = self._whole_number(table, "points", index)
        seconds = self._whole_number(table, "seconds", index, seconds)
        implements = self._functions(table, "implements", index, Backend.TORCH)
        hints = self._hints(table, "hints", index)
        shortcuts = self._shortcuts(table, index) if "shortcuts" in table else ()
        task = Task(
            self.week, self.day, index + 1, task_id, title, points, implements, hints, seconds, shortcuts
        )
        if "mlx" in table or "mlx_hints" in table:
            mlx = self._functions(table, "mlx", index, Backend.MLX)
            task = replace(task, mlx=mlx, mlx_hints=self._hints(table, "mlx_hints", index))
        return task if len(self.problems) == before else None

    def _whole_number(
        self, table: dict[str, Any], key: str, index: int | None, usual: int | None = None
    ) -> int:
        number = table.get(key, usual)
        if type(number) is int and number > 0:
            return number
        self._note(
            self._lines.of(key, index),
            f"{key} is missing" if number is None else f"{key} is {number!r}: give a whole number above 0",
        )
        return 0

    def _functions(
        self, table: dict[str, Any], key: str, index: int, track: Backend
    ) -> tuple[FunctionRef, ...]:
        refs = []
        for item, text in enumerate(self._strings(table, key, index)):
            line = self._lines.of(key, index, item)
            try:
                refs.append(FunctionRef.parse(text))
                self.claims.append(Claim(refs[-1], Problem(self.name, line), track.package))
            except CourseError as error:
                self._note(line, str(error))
        return tuple(refs)

    def _hints(self, table: dict[str, Any], key: str, index: int) -> tuple[str, str, str]:
        hints = [hint.strip() for hint in self._strings(table, key, index)]
        if hints and len(hints) != HINTS:
            self._note(self._lines.of(key, index), f"has {len(hints)} {key}: a task has exactly {HINTS}")
        for item, hint in enumerate(hints):
            if not hint:
                self._note(self._lines.of(key, index, item), f"hint {item + 1} is empty")
        first, second, third = (*hints, "", "", "")[:HINTS]
        return first, second, third

    def _shortcuts(self, table: dict[str, Any], index: int) -> tuple[str, ...]:
        names = self._strings(table, "shortcuts", index)
        for item, name in enumerate(names):
            if not DOTTED.fullmatch(name):
                self._note(
                    self._lines.of("shortcuts", index, item),
                    f"{name!r} names no call: write it with its module, such as torch.softmax",
                )
        return tuple(names)

    def _strings(
        self, table: dict[str, Any], key: str, index: int | None, may_be_empty: bool = False
    ) -> list[str]:
        value = table.get(key)
        there = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if there and (value or may_be_empty):
            return list(value or [])
        wanted = "a list of strings" if may_be_empty else "a list of strings, not empty"
        self._note(
            self._lines.of(key, index), f"{key} is missing" if value is None else f"{key} must be {wanted}"
        )
        return []

    def _text(self, table: dict[str, Any], key: str, index: int | None) -> str:
        value = table.get(key)
        if isinstance(value, str) and value.strip():
            return value.strip()
        self._note(
            self._lines.of(key, index),
            f"{key} is missing" if value is None else f"{key} must be text, not empty",
        )
        return ""

    def _refuse_unknown_keys(self, table: dict[str, Any], known: set[str], index: int | None) -> None:
        for key in sorted(table.keys() - known):
            self._note(
                self._lines.of(key, index), f"unknown key {key!r}; known here: {', '.join(sorted(known))}"
            )

    def _note(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.name, line, message))
