"""The parts of a day, as its `lesson.toml` states them: functions, tasks, the lesson."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from coursekit.errors import CourseError

TEST_SECONDS = 10
"""How long a test may take where its lesson says nothing else."""


@dataclass(frozen=True, order=True)
class FunctionRef:
    """A function or method of the package: `attention.py::RoPE.__call__`."""

    file: str
    qualname: str

    @classmethod
    def parse(cls, text: str) -> FunctionRef:
        """Read `file.py::Qualified.name`.

        Raises:
            CourseError: the text is of another form.
        """
        match = re.fullmatch(r"((?:\w+/)*\w+\.py)::([^\W\d]\w*(?:\.[^\W\d]\w*)*)", text)
        if match is None:
            raise CourseError(
                f"{text!r} names no function: write it as file.py::Class.method or file.py::function"
            )
        return cls(match[1], match[2])

    def __str__(self) -> str:
        return f"{self.file}::{self.qualname}"


@dataclass(frozen=True)
class Task:
    """One task of a day: the functions it asks for, its points and its three hints.

    `shortcuts` are calls that would do the task's work, by their dotted names ("torch.softmax").
    """

    week: int
    day: int
    number: int
    id: str
    title: str
    points: int
    implements: tuple[FunctionRef, ...]
    hints: tuple[str, str, str]
    seconds: int = TEST_SECONDS
    """How long each of its tests may take."""
    shortcuts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.week}.{self.day}.{self.number}"

    @property
    def label(self) -> str:
        return f"Week {self.week} Day {self.day} Task {self.number}"

    @property
    def stub_message(self) -> str:
        """What this task's stubs raise: `Week 1 Day 3 Task 2: Grouped-query attention`."""
        return f"{self.label}: {self.title}"

    @property
    def test_command(self) -> str:
        return f"pdm run test {self.name}"


@dataclass(frozen=True)
class Lesson:
    """One day: its title, its goal, its chapter under `book/src`, its tasks in order.

    `needs` names the earlier days whose code its tests reach; None stands for all of them.
    """

    week: int
    day: int
    title: str
    goal: str
    chapter: str
    tasks: tuple[Task, ...]
    path: Path
    stage: str | None = None
    needs: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return f"{self.week}.{self.day}"

    @property
    def test_command(self) -> str:
        return f"pdm run test {self.name}"

    @property
    def read_command(self) -> str:
        """The command that opens the chapter in the browser."""
        return f"pdm run book --open {self.name}"

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def functions(self) -> tuple[FunctionRef, ...]:
        return tuple(ref for task in self.tasks for ref in task.implements)
