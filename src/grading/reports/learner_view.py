"""What a learner's page says, worked out of the marks; every text in it is bounded and fit to be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from coursekit.task_state import TaskState
from grading.marks import DayMark, Marks, TaskMark
from grading.reports.book import Book, Reading, open_command
from grading.reports.looks import FAILED, Look, look
from grading.reports.text import block, counted, line, number, when

_TASK = re.compile(r"\d+\.\d+\.\d+(?=\s|$)", re.ASCII)


@dataclass(frozen=True)
class TaskRow:
    """One line of the board; ``note`` says why it stands so, and is empty where nothing needs to be said."""

    name: str
    title: str
    look: Look
    earned: str
    points: str
    note: str


@dataclass(frozen=True)
class DayBoard:
    """The board of one day; ``late`` says what lateness has cost, and is empty where the day was in time."""

    name: str
    title: str
    rows: tuple[TaskRow, ...]
    earned: str
    points: str
    late: str
    weight: str


@dataclass(frozen=True)
class FirstThing:
    """What to look at first: a test that fails, a forbidden call, or the next task to write."""

    heading: str
    task: str
    look: Look
    checks: str
    where: str
    message: str
    reading: Reading
    commands: tuple[tuple[str, str], ...]
    """What to type, and what for."""


@dataclass(frozen=True)
class LearnerView:
    """``refusal`` says why nothing could be graded; then there is no board and nothing to look at."""

    name: str
    submission: str
    graded: str
    submitted: str
    earned: str
    points: str
    percent: str
    refusal: str
    days: tuple[DayBoard, ...]
    first: FirstThing | None
    isolation: str


def learner_name(marks: Marks) -> str:
    """The name on the roster, else the id."""
    return line(marks.student.name) or line(marks.student.id) or "(no name)"


def view_of(marks: Marks, book: Book) -> LearnerView:
    """All that the learner's page shows. The notes for the instructor are not in it."""
    return LearnerView(
        name=learner_name(marks),
        submission=line(marks.submission),
        graded=when(marks.graded),
        submitted=when(marks.submitted) if marks.submitted else "",
        earned=number(marks.earned),
        points=number(marks.points),
        percent=f"{marks.percent:.0f}",
        refusal=block(marks.refusal),
        days=() if marks.refusal else tuple(_board(day) for day in marks.days),
        first=None if marks.refusal else _first_thing(marks, book),
        isolation=line(marks.isolation),
    )


def forbidden(task: TaskMark) -> bool:
    """Whether the tests pass and the task earns nothing, because its work is done by a call that it may not make."""
    return task.state == TaskState.PASSED and bool(task.shortcuts) and task.earned < task.points


def lost_by_lateness(day: DayMark) -> float:
    """The weighted points that the policy on late days takes off."""
    return day.weight * (1 - day.kept) * day.earned


def _board(day: DayMark) -> DayBoard:
    late = ""
    if day.days_late:
        cost = lost_by_lateness(day)
        days = counted(day.days_late, "day")
        late = f"{days} late: −{number(cost)} points" if cost else f"{days} late: costs nothing"
    return DayBoard(
        name=line(day.name),
        title=line(day.title),
        rows=tuple(_row(task) for task in day.tasks),
        earned=number(day.weight * day.kept * day.earned),
        points=number(day.weight * day.points),
        late=late,
        weight="" if day.weight == 1 else f"counts {number(day.weight)} times",
    )


def _row(task: TaskMark) -> TaskRow:
    earned = "–" if task.state == TaskState.SKIPPED else str(task.earned)
    return TaskRow(line(task.name), line(task.title), look(task.state), earned, str(task.points), _note(task))


def _note(task: TaskMark) -> str:
    if task.state == TaskState.SKIPPED:
        return line(task.failure) or "can't run where it was graded; costs no points"
    if task.shortcuts:
        return f"calls {calls(task)}" + (
            ", which may not do this task's work: no points" if forbidden(task) else ""
        )
    if task.state == TaskState.NOT_STARTED and task.needs:
        return f"needs {line(task.needs)} first"
    if task.state != TaskState.PASSED and task.passed:
        return f"{task.passed} of {counted(task.planned, 'test')} pass"
    return ""


def calls(task: TaskMark) -> str:
    """The forbidden calls as words: ``torch.softmax and torch.exp``."""
    names = [line(each, 60) for each in task.shortcuts[:5]]
    if left := len(task.shortcuts) - len(names):
        names.append(f"{left} more")
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _first_thing(marks: Marks, book: Book) -> FirstThing | None:
    places = [(day, task) for day in marks.days for task in day.tasks]
    for day, task in places:
        if task.state in FAILED:
            return _failing(day, task, book, block(task.failure))
    for day, task in places:
        if forbidden(task):
            said = f"Your code calls {calls(task)}, which may not do this task's work, so it earns no points."
            return _failing(day, task, book, said)
    missing = next(((day, task) for day, task in places if task.state == TaskState.NOT_STARTED), None)
    return _missing(places, *missing, book) if missing else None


def _failing(day: DayMark, task: TaskMark, book: Book, message: str) -> FirstThing:
    return FirstThing(
        heading="The first thing to look at",
        task=f"{line(task.name)} {line(task.title)}",
        look=look(task.state),
        checks=line(task.sentence, 300),
        where=line(task.where, 200),
        message=message,
        reading=book.reading(day, task),
        commands=_commands(line(task.name), "when you have changed it"),
    )


def _missing(places: list[tuple[DayMark, TaskMark]], day: DayMark, task: TaskMark, book: Book) -> FirstThing:
    """The task to write; where its tests reached another task's stub, that one."""
    needed = _TASK.match(task.needs)
    name, title, reading = task.name, line(task.title), book.reading(day, task)
    if needed:
        name, title = needed[0], line(task.needs[needed.end() :])
        there = next((place for place in places if place[1].name == name), None)
        reading = (
            book.reading(*there) if there else Reading("", "", "", open_command(name.rpartition(".")[0]))
        )
    return FirstThing(
        heading="Next to write",
        task=f"{line(name)} {title}".strip(),
        look=look(TaskState.NOT_STARTED),
        checks="",
        where="",
        message="",
        reading=reading,
        commands=_commands(line(name), "to test it"),
    )


def _commands(name: str, purpose: str) -> tuple[tuple[str, str], ...]:
    return (f"pdm run test {name}", purpose), (f"pdm run hint {name}", "for a hint")
