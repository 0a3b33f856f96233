"""Files for the gradebooks of Moodle and Canvas. Both find a learner by what a roster says, so one is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coursekit.errors import CourseError
from grading.marks import DayMark, Marks, Student
from grading.reports.class_view import by_name
from grading.reports.learner_view import learner_name
from grading.reports.names import in_order
from grading.reports.spreadsheet import Cell, table
from grading.reports.text import line, number

NAMED_IN_ERROR = 5
CANVAS_COLUMNS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
MOODLE_COLUMNS = ("Full name", "ID number", "Email address")
_POINTS_POSSIBLE = "Points Possible"


def moodle_csv(class_marks: Sequence[Marks], course: str) -> bytes:
    """For *Grades, Import, CSV file*: map from *Email address* to *Email address*.

    A column per day, a total, and its feedback. The grades of a submission that couldn't be graded are empty; its
    feedback says why.

    Raises:
        CourseError: the roster has no e-mail address for a learner.
    """
    _require(class_marks, lambda student: student.email, "Moodle", "e-mail address", "email")
    days = _days(class_marks)
    header = [
        *MOODLE_COLUMNS,
        *(f"{course} Day {day}" for day in days),
        f"{course} total",
        f"{course} feedback",
    ]
    return table([header, *(_moodle_row(marks, list(days)) for marks in by_name(class_marks))], mark=False)


def canvas_csv(class_marks: Sequence[Marks], course: str) -> bytes:
    """For *Gradebook, Import*: an assignment per day, unweighted, since Canvas weighs assignments itself.

    The id of the roster is Canvas's *SIS Login ID*, the name learners log in with. *ID* stays empty: it is a number
    of Canvas's own, and another number in it could be another learner. Days of a submission that couldn't be graded
    are empty.

    Raises:
        CourseError: the roster lacks a learner's name or id, or has a name that Canvas would take for its own row.
    """
    _require(class_marks, lambda student: student.id.strip(), "Canvas", "login", "id")
    _require(class_marks, lambda student: student.name.strip(), "Canvas", "name", "name")
    for marks in class_marks:
        if _POINTS_POSSIBLE in marks.student.name:
            raise CourseError(
                f"Canvas takes the learner {line(marks.student.id)} for its row {_POINTS_POSSIBLE!r}: mend the "
                "name in the roster"
            )
    days = _days(class_marks)
    header = [*CANVAS_COLUMNS, *(f"{course} Day {name}: {line(day.title)}" for name, day in days.items())]
    possible: list[Cell] = [_POINTS_POSSIBLE, "", "", "", "", *(day.points for day in days.values())]
    return table(
        [header, possible, *(_canvas_row(marks, list(days)) for marks in by_name(class_marks))], mark=False
    )


def _days(class_marks: Sequence[Marks]) -> dict[str, DayMark]:
    """The days that occur in the class, each as one learner has it."""
    found = {day.name: day for marks in by_name(class_marks) for day in marks.days}
    return {name: found[name] for name in sorted(found, key=in_order)}


def _moodle_row(marks: Marks, days: Sequence[str]) -> list[Cell]:
    student, points = marks.student, _points(marks, days, weighted=True)
    if marks.refusal:
        said: tuple[Cell, Cell] = (None, f"not graded: {marks.refusal}")
    else:
        said = marks.earned, f"{number(marks.earned)} of {number(marks.points)} points"
    return [learner_name(marks), student.id, student.email, *points, *said]


def _canvas_row(marks: Marks, days: Sequence[str]) -> list[Cell]:
    return [marks.student.name, "", "", marks.student.id, "", *_points(marks, days, weighted=False)]


def _points(marks: Marks, days: Sequence[str], *, weighted: bool) -> list[Cell]:
    """What counts of each day; None where it wasn't graded."""
    if marks.refusal:
        return [None] * len(days)
    earned = {day.name: (day.weight if weighted else 1) * day.kept * day.earned for day in marks.days}
    return [earned.get(day) for day in days]


def _require(
    class_marks: Sequence[Marks], known: Callable[[Student], str], program: str, what: str, column: str
) -> None:
    lacking = [
        line(marks.student.id) or "(no id)" for marks in by_name(class_marks) if not known(marks.student)
    ]
    if lacking:
        names = ", ".join(lacking[:NAMED_IN_ERROR])
        more = f" and {len(lacking) - NAMED_IN_ERROR} more" if len(lacking) > NAMED_IN_ERROR else ""
        raise CourseError(
            f"{program} finds learners by the roster, which has no {what} for {names}{more}: give a roster with the "
            f"column {column!r} filled in"
        )
