"""What a submission has earned: plain records, from which every report is made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter

from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.task_state import TaskState
from grading.sandbox.limits_only import LimitsOnly


@dataclass(frozen=True)
class Student:
    """Who handed in: ``id`` is unique in the class; the rest is what a roster says, or empty."""

    id: str
    name: str = ""
    email: str = ""


@dataclass(frozen=True)
class TaskMark:
    """One task: all its points when every test of it passed, else none.

    ``failure`` says what is wrong in plain words, ``sentence`` what the first failing test checks, ``where`` its file
    and line; ``needs`` names the task whose stub was reached where that is another one; ``shortcuts`` are forbidden
    calls that the code made.
    """

    name: str
    title: str
    points: int
    earned: int
    state: TaskState
    passed: int
    planned: int
    failure: str = ""
    sentence: str = ""
    where: str = ""
    needs: str = ""
    shortcuts: tuple[str, ...] = ()


@dataclass(frozen=True)
class DayMark:
    """One day; ``kept`` is the share of its points that is left after the policy on late days (1 when in time)."""

    name: str
    title: str
    chapter: str
    tasks: tuple[TaskMark, ...]
    weight: float = 1.0
    days_late: int = 0
    kept: float = 1.0

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    @property
    def earned(self) -> int:
        """Before anything is taken off."""
        return sum(task.earned for task in self.tasks)


@dataclass(frozen=True)
class Marks:
    """All that the grader found out about one submission.

    ``content`` is the hash of the files that count, ``course`` of the tests and of all else that decides on points,
    ``draw`` of the seed: where all three are the same, so are the points. ``isolation`` names what kept the learner's
    code in. ``refusal`` says why nothing could be graded, and is empty otherwise; ``notes`` are for the instructor.
    """

    student: Student
    submission: str
    content: str
    course: str
    draw: str
    isolation: str
    graded: datetime
    seconds: float
    days: tuple[DayMark, ...]
    submitted: datetime | None = None
    notes: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def points(self) -> float:
        """All that could be earned, weighted."""
        return sum(day.weight * day.points for day in self.days)

    @property
    def earned(self) -> float:
        """What counts: weighted, and with what lateness has cost."""
        return sum(day.weight * day.kept * day.earned for day in self.days)

    @property
    def without_isolation(self) -> bool:
        """Whether nothing but limits kept the learner's code in."""
        return self.isolation == LimitsOnly.name

    @property
    def percent(self) -> float:
        """0 where there is nothing to earn."""
        return 100 * self.earned / self.points if self.points else 0.0


_ADAPTER = TypeAdapter(Marks)


def write_marks(marks: Marks, path: Path) -> None:
    """Write them as JSON, whole or not at all."""
    write_files({path: marks_to_json(marks)})


def read_marks(path: Path) -> Marks:
    """What ``write_marks`` wrote.

    Raises:
        CourseError: the file can't be read, or isn't one.
    """
    try:
        return marks_from_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CourseError(f"{path} can't be read as marks: {error}") from error


def marks_to_json(marks: Marks) -> bytes:
    """All of them."""
    return _ADAPTER.dump_json(marks, indent=1)


def marks_from_json(data: bytes) -> Marks:
    """What ``marks_to_json`` gave.

    Raises:
        ValueError: it is something else.
    """
    return _ADAPTER.validate_json(data)
