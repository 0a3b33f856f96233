"""Looks into every submission before any is graded: whose it is, what counts in it, what was graded already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from grading.running.rules import Surveyed
from grading.submissions.entries import Entry
from grading.submissions.layout import Layout
from grading.submissions.matching import Owner, assign
from grading.submissions.members import Refused
from grading.submissions.reading import Clock, read_submission
from grading.submissions.roster import Listed


def survey(
    entries: Sequence[Entry], roster: Sequence[Listed], layouts: Sequence[Layout], times_matter: bool
) -> Iterator[Surveyed]:
    """Every submission, in order, each when it has been read.

    Args:
        entries: the submissions.
        roster: the learners of the class; empty where there is no roster.
        layouts: the packages that may be in a submission.
        times_matter: whether a day has a due time, so that a doubtful time of a submission deserves a note.

    Raises:
        CourseError: two submissions belong to one learner, or a program that reads them is missing.
    """
    for entry, owner in zip(entries, assign(entries, roster), strict=True):
        yield _look(entry, owner, layouts, times_matter)


def without_submission(roster: Sequence[Listed], surveyed: Sequence[Surveyed]) -> list[Listed]:
    """The learners of the roster who have handed in nothing, in its order."""
    there = {each.student.id for each in surveyed}
    return [one for one in roster if one.student.id not in there]


def _look(entry: Entry, owner: Owner, layouts: Sequence[Layout], times_matter: bool) -> Surveyed:
    try:
        handed = read_submission(entry, layouts)
    except Refused as error:
        return Surveyed(
            entry, owner.student, submitted=owner.submitted, notes=owner.notes, refusal=str(error)
        )
    submitted, clock = handed.submitted, handed.clock
    if owner.submitted is not None:
        submitted, clock = owner.submitted, Clock.ROSTER
    doubt = _doubt(submitted) if times_matter and clock is Clock.FILE else ()
    return Surveyed(entry, owner.student, handed.content, submitted, (*owner.notes, *handed.notes, *doubt))


def _doubt(submitted: datetime) -> tuple[str, ...]:
    return (f"its time, {submitted:%Y-%m-%d %H:%M} UTC, is only that of its files: a roster can say better",)
