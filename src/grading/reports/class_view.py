"""What the class page says: how the class stands, where it is stuck, who stands where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from coursekit.task_state import TaskState
from grading.marks import Marks
from grading.reports.failures import FailureGroup, group_failures
from grading.reports.learner_view import learner_name
from grading.reports.looks import LOOKS, Look, look
from grading.reports.names import file_name, in_order
from grading.reports.text import block, line, number

BINS = 10
STUCK_SHOWN = 5


@dataclass(frozen=True)
class TaskRow:
    """How the class stands on one task; ``counts`` follow the order of ``LOOKS``; ``stuck`` counts the learners for
    whom this is the first task that isn't passed."""

    name: str
    title: str
    counts: tuple[int, ...]
    stuck: int

    @property
    def total(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True)
class Bin:
    """One bar of the distribution: ``share`` of the highest bar, in percent."""

    label: str
    count: int
    share: float


@dataclass(frozen=True)
class DayCell:
    """One learner's day: points, and the looks of its tasks."""

    earned: str
    points: str
    looks: tuple[Look, ...]
    late: int


@dataclass(frozen=True)
class LearnerRow:
    """``place`` is the learner's row in the figure, or 0; ``file`` is the name of its page, without ending."""

    name: str
    identity: str
    file: str
    place: int
    earned: str
    points: str
    percent: str
    days: tuple[DayCell | None, ...]
    notes: tuple[str, ...]
    refusal: str


@dataclass(frozen=True)
class ClassView:
    """``days`` and ``tasks`` are all that occur in the class, by number; ``learners`` are sorted by name.

    ``isolations`` count the learners by what kept their code in, the most frequent first; ``bare`` is how many had
    none, but limits.
    """

    days: tuple[tuple[str, str], ...]
    tasks: tuple[TaskRow, ...]
    stuck: tuple[TaskRow, ...]
    failures: tuple[FailureGroup, ...]
    bins: tuple[Bin, ...]
    median: str
    complete: int
    refused: tuple[LearnerRow, ...]
    noted: tuple[LearnerRow, ...]
    learners: tuple[LearnerRow, ...]
    graded: int
    isolations: tuple[tuple[str, int], ...]
    bare: int


def view_of(class_marks: Sequence[Marks]) -> ClassView:
    """All that the class page shows."""
    class_marks = by_name(class_marks)
    graded = [marks for marks in class_marks if not marks.refusal]
    places = {marks.student.id: place for place, marks in enumerate(by_points(graded), 1)}
    days = {day.name: line(day.title) for marks in class_marks for day in marks.days}
    names = sorted(days, key=in_order)
    rows = [_learner(marks, names, places.get(marks.student.id, 0)) for marks in class_marks]
    tasks = _tasks(graded)
    percents = [marks.percent for marks in graded]
    return ClassView(
        days=tuple((line(name), days[name]) for name in names),
        tasks=tasks,
        stuck=tuple(sorted((row for row in tasks if row.stuck), key=lambda row: -row.stuck)[:STUCK_SHOWN]),
        failures=group_failures(graded),
        bins=_bins(percents),
        median=f"{median(percents):.0f}" if percents else "–",
        complete=sum(percent >= 100 for percent in percents),
        refused=tuple(row for row in rows if row.refusal),
        noted=tuple(row for row in rows if row.notes),
        learners=tuple(row for row in rows if not row.refusal),
        graded=len(graded),
        isolations=tuple(Counter(line(marks.isolation) or "unknown" for marks in graded).most_common()),
        bare=sum(marks.without_isolation for marks in graded),
    )


def by_name(class_marks: Sequence[Marks]) -> list[Marks]:
    """Sorted by name, whatever the case; the id decides between learners of one name."""
    return sorted(class_marks, key=lambda marks: (learner_name(marks).casefold(), marks.student.id))


def by_points(graded: Sequence[Marks]) -> list[Marks]:
    """Those with the most first; by name where they have the same."""
    return sorted(by_name(graded), key=lambda marks: -marks.percent)


def _tasks(graded: Sequence[Marks]) -> tuple[TaskRow, ...]:
    titles: dict[str, str] = {}
    states: dict[str, Counter[TaskState]] = {}
    stuck: Counter[str] = Counter()
    for marks in graded:
        tasks = sorted(
            (task for day in marks.days for task in day.tasks), key=lambda task: in_order(task.name)
        )
        for task in tasks:
            titles.setdefault(task.name, line(task.title))
            states.setdefault(task.name, Counter())[task.state] += 1
        first = next(
            (task for task in tasks if task.state not in (TaskState.PASSED, TaskState.SKIPPED)), None
        )
        if first is not None:
            stuck[first.name] += 1
    return tuple(
        TaskRow(line(name), titles[name], tuple(states[name][each.state] for each in LOOKS), stuck[name])
        for name in sorted(titles, key=in_order)
    )


def _bins(percents: Sequence[float]) -> tuple[Bin, ...]:
    """Ten of ten percent each; 100 is in the last."""
    counts = Counter(min(int(percent // BINS), BINS - 1) for percent in percents)
    highest = max(counts.values(), default=1)
    labels = [f"{step * BINS}–{step * BINS + BINS - (step < BINS - 1)}" for step in range(BINS)]
    return tuple(Bin(label, counts[step], 100 * counts[step] / highest) for step, label in enumerate(labels))


def _learner(marks: Marks, names: Sequence[str], place: int) -> LearnerRow:
    days = {day.name: day for day in marks.days}
    cells = [
        DayCell(
            number(day.weight * day.kept * day.earned),
            number(day.weight * day.points),
            tuple(look(task.state) for task in day.tasks),
            day.days_late,
        )
        if (day := days.get(name)) is not None
        else None
        for name in names
    ]
    return LearnerRow(
        name=learner_name(marks),
        identity=line(marks.student.id),
        file=file_name(marks.student.id),
        place=place,
        earned=number(marks.earned),
        points=number(marks.points),
        percent=f"{marks.percent:.0f}",
        days=tuple(cells),
        notes=tuple(line(note, 300) for note in marks.notes),
        refusal=block(marks.refusal, 600, 6),
    )
