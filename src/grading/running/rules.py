"""What the submissions of a run have in common, and the work on one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from coursekit.backends import Backend
from coursekit.manifest import Lesson
from coursekit.paths import Course
from grading.judging import Judged
from grading.marks import Marks, Student
from grading.submissions.entries import Entry
from grading.submissions.layout import Layout

Judge = Callable[[Course, Path, Sequence[Lesson], str, Backend, bool], Judged]
"""``grading.judging.judge``, or what stands in for it."""
Write = Callable[[Sequence[Marks], Path], None]
"""Writes the reports of a class into a folder."""


@dataclass(frozen=True)
class Rules:
    """What decides on points beside a learner's files; ``course_hash`` and ``draw`` are their fingerprints.

    ``without_isolation`` allows limits only where there is no isolation, and marks that were earned so.
    """

    course: Course
    lessons: tuple[Lesson, ...]
    layouts: tuple[Layout, ...]
    backend: Backend
    seed: str = field(repr=False)
    course_hash: str
    draw: str
    without_isolation: bool = False


@dataclass(frozen=True)
class Surveyed:
    """A submission that was looked into: ``content`` is the hash of its files, ``refusal`` why it can't be graded."""

    entry: Entry
    student: Student
    content: str = ""
    submitted: datetime | None = None
    notes: tuple[str, ...] = ()
    refusal: str = ""


@dataclass(frozen=True)
class Job:
    """The work on one submission; the marks are written to ``target``, and ``work`` is a folder for its own files."""

    rules: Rules
    surveyed: Surveyed
    target: Path
    work: Path
