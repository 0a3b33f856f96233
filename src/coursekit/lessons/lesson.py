"""The parts of a day, as its `lesson.toml` states them: functions, tasks, the lesson."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from coursekit.backends import Backend
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
    `mlx` are the functions that the MLX track asks for instead, and `mlx_hints` the hints for them; mostly there are
    none, because the functions of both tracks have the same names.
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
    mlx: tuple[FunctionRef, ...] = ()
    mlx_hints: tuple[str, str, str] = ("", "", "")

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
    `test_file` holds its tests, as seen from the folder of all tests.
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
    test_file: str = ""

    def on(self, package: str) -> Lesson:
        """The day as the track of ``package`` has it.

        Where a task has functions for MLX, the day has tests of its own on that track, and only the tasks that have
        such functions.
        """
        if package == Backend.TORCH.package or not self.differs_by_track:
            return self
        tasks = tuple(
            replace(task, implements=task.mlx, hints=task.mlx_hints) for task in self.tasks if task.mlx
        )
        return replace(self, tasks=tasks, test_file=_test_file(self.week, self.day, "_mlx"))

    def __post_init__(self) -> None:
        if not self.test_file:
            object.__setattr__(self, "test_file", _test_file(self.week, self.day))

    @property
    def differs_by_track(self) -> bool:
        """Whether the MLX track asks for functions of its own."""
        return any(task.mlx for task in self.tasks)

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


def _test_file(week: int, day: int, track: str = "") -> str:
    return f"week_{week}/test_day_{day}{track}.py"
