"""Grades one submission: lays its files over a fresh starter, has them judged, makes the marks."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from coursekit.errors import CourseError
from grading.marks import Marks
from grading.running.marking import mark_days, mark_nothing
from grading.running.rules import Job, Judge, Rules, Surveyed
from grading.submissions.members import Refused
from grading.submissions.reading import read_submission


def grade_one(job: Job, judge: Judge) -> Marks:
    """The marks of a submission, which is read anew: should it have changed since, its new content counts.

    Raises:
        CourseError: the tests could not be run, or the disk is full.
        KeyboardInterrupt: nothing that was started is left.
    """
    rules, began = job.rules, time.monotonic()
    try:
        handed = read_submission(job.surveyed.entry, rules.layouts)
    except Refused as error:
        return refused_marks(rules, replace(job.surveyed, refusal=str(error)))
    with tempfile.TemporaryDirectory(dir=job.work, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for layout in rules.layouts:
            lay(folder / layout.package, layout.starter)
        lay(folder, handed.files)
        judged = judge(
            rules.course, folder, rules.lessons, rules.seed, rules.backend, rules.without_isolation
        )
    marks = refused_marks(rules, job.surveyed)
    return replace(
        marks,
        content=handed.content,
        isolation=judged.isolation,
        graded=datetime.now(UTC),
        seconds=time.monotonic() - began,
        days=mark_days(rules.lessons, judged.report),
    )


def refused_marks(rules: Rules, surveyed: Surveyed) -> Marks:
    """The marks of a submission that isn't graded: nothing is earned."""
    return Marks(
        student=surveyed.student,
        submission=surveyed.entry.name,
        content=surveyed.content,
        course=rules.course_hash,
        draw=rules.draw,
        isolation="",
        graded=datetime.now(UTC),
        seconds=0.0,
        days=mark_nothing(rules.lessons),
        submitted=surveyed.submitted,
        notes=surveyed.notes,
        refusal=surveyed.refusal,
    )


def failed_marks(job: Job, reason: str) -> Marks:
    """The marks where the grader itself has failed: without fingerprints, so that the next run tries again."""
    said = reason.replace(job.rules.seed, "…") if job.rules.seed else reason
    refusal = "the grader failed on it, which says nothing about the code: grade it again"
    marks = refused_marks(job.rules, replace(job.surveyed, refusal=refusal, content=""))
    return replace(marks, course="", draw="", notes=(*marks.notes, f"the grader failed: {said}"))


def reason_of(error: BaseException) -> str:
    """An error in one line; of one that was not foreseen also where it came from."""
    told = " ".join(str(error).split())
    if isinstance(error, CourseError):
        return told
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {told}{place}"


def lay(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files by their paths within a folder.

    Raises:
        CourseError: one can't be written.
    """
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as error:
        raise CourseError(f"can't write the learner's files: {error.strerror}") from error
