"""The learner's own records in `.course/`: results, hints shown, borrowed functions, copies of files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console
from rich.markup import escape

from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.lessons.lesson import FunctionRef
from coursekit.lessons.outline import fingerprint, functions, parse
from coursekit.paths import Course
from coursekit.task_state import TaskState

SCHEMA = 1
LOCK_SECONDS = 10.0


@dataclass(frozen=True)
class Result:
    """How a task's last run ended: the state, the points earned, when (ISO 8601, UTC)."""

    state: TaskState
    points: int
    when: str

    def __post_init__(self) -> None:
        if type(self.points) is not int or type(self.when) is not str:
            raise ValueError(f"no result of a task: {self}")


@dataclass
class State:
    """What `.course/progress.json` holds.

    results: by package ("tiny_llm"), then by task ("1.3.2").
    hints: how many of a task's hints were shown, by task.
    borrowed: by package, then by function ("attention.py::softmax"): the fingerprint of the borrowed code.
    towards: by package, the day that the learner caught up to last ("3.5").
    """

    path: Path
    results: dict[str, dict[str, Result]] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    borrowed: dict[str, dict[str, str]] = field(default_factory=dict)
    towards: dict[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, course: Course) -> State:
        """Read the records; none yet is an empty state, and a damaged file is moved aside with a word.

        Raises:
            CourseError: a newer version of the course wrote the file, or it can't be read.
        """
        path = course.state / "progress.json"
        try:
            return cls._read(path)
        except FileNotFoundError:
            return cls(path)
        except OSError as error:
            raise CourseError(f"can't read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            _move_aside(path)
            return cls(path)

    @classmethod
    @contextmanager
    def changing(cls, course: Course) -> Iterator[State]:
        """The records, while no other command may change them; they are written when the block ends well.

        Raises:
            CourseError: they can't be read or written, or another command keeps them for too long.
        """
        lock = FileLock(course.state / "progress.lock", timeout=LOCK_SECONDS)
        try:
            course.state.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout as error:
            raise CourseError(
                f"another command has held {lock.lock_file} for {LOCK_SECONDS:.0f} s: end it first"
            ) from error
        except OSError as error:
            raise CourseError(f"can't write in {course.state}: {error.strerror or error}") from error
        try:
            state = cls.load(course)
            yield state
            state.save()
        finally:
            lock.release()

    @classmethod
    def _read(cls, path: Path) -> State:
        table = json.loads(path.read_bytes())
        if type(table["schema"]) is int and table["schema"] > SCHEMA:
            raise CourseError(f"{path} was written by a newer version of the course: update the course")
        results = {
            package: {
                task: Result(**{**result, "state": TaskState(result["state"])})
                for task, result in tasks.items()
            }
            for package, tasks in table["results"].items()
        }
        hints = {str(task): _hint_count(count) for task, count in table["hints"].items()}
        borrowed = {
            package: {ref: str(mark) for ref, mark in refs.items()}
            for package, refs in table["borrowed"].items()
        }
        towards = {str(package): str(day) for package, day in table.get("towards", {}).items()}
        return cls(path, results, hints, borrowed, towards)

    def save(self) -> None:
        """Write the records, whole or not at all."""
        table: dict[str, Any] = {
            "schema": SCHEMA,
            "results": {
                p: {t: asdict(r) for t, r in sorted(tasks.items())} for p, tasks in self.results.items()
            },
            "hints": self.hints,
            "borrowed": self.borrowed,
            "towards": self.towards,
        }
        write_files({self.path: (json.dumps(table, indent=2) + "\n").encode()})

    def record(self, package: str, task: str, state: str, points: int) -> None:
        """Note how a task's run ended just now; `save()` writes it.

        Raises:
            ValueError: there is no such state.
        """
        when = datetime.now(UTC).isoformat(timespec="seconds")
        self.results.setdefault(package, {})[task] = Result(TaskState(state), points, when)

    def result(self, package: str, task: str) -> Result | None:
        return self.results.get(package, {}).get(task)

    def latest_package(self) -> str:
        """The package that was tested last; "tiny_llm" where none was."""
        latest = {
            package: max((r.when for r in tasks.values()), default="")
            for package, tasks in self.results.items()
        }
        return max(latest, key=lambda package: latest[package], default="tiny_llm")

    def borrow(self, package: str, ref: FunctionRef, source: str) -> None:
        """Remember that a function's code came from the reference; `source` is the file that has it."""
        mark = fingerprint(functions(parse(source, ref.file))[ref.qualname][-1])
        self.borrowed.setdefault(package, {})[str(ref)] = mark

    def is_borrowed(self, package: str, ref: FunctionRef, mark: str) -> bool:
        """Whether a function is still what was borrowed; rewritten, its fingerprint differs."""
        return self.borrowed.get(package, {}).get(str(ref)) == mark

    def forget(self, package: str, task: str, refs: Iterable[FunctionRef]) -> None:
        """Drop a task's result and what was borrowed for it."""
        self.results.get(package, {}).pop(task, None)
        for ref in refs:
            self.borrowed.get(package, {}).pop(str(ref), None)


def note(text: str) -> None:
    """Print a word on standard error that stops nothing."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"[yellow]note:[/yellow] {escape(text)}")


def _hint_count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"no number of hints: {value!r}")
    return value


def _move_aside(path: Path) -> None:
    aside = path.with_name(path.name + ".damaged")
    number = 2
    while aside.exists():
        aside = path.with_name(f"{path.name}.damaged-{number}")
        number += 1
    try:
        os.replace(path, aside)
    except OSError as error:
        note(f"the records in {path.name} are damaged, and can't be moved aside: {error.strerror or error}")
        return
    note(
        f"the records in {path.name} were damaged. They are now in {aside.name}, and new ones begin; "
        "your code is untouched."
    )
