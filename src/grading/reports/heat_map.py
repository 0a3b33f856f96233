"""The figure of a class: a row per learner, a column per task, a shape and a color per state.

Small classes have names at the rows. Large ones have numbers, and stand in panels beside one another, which a narrow
window puts below one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coursekit.task_state import TaskState
from grading.marks import Marks
from grading.reports.class_view import by_points
from grading.reports.learner_view import learner_name
from grading.reports.looks import LOOKS, Look
from grading.reports.names import in_order
from grading.reports.text import line

NAMED = 40  # up to so many learners have their names in the figure
PANEL_ROWS = 125
STEP_OF_NUMBERS = 5


@dataclass(frozen=True)
class Sizes:
    """In units of the drawing, which are pixels at full size: a cell's pitch and side, fonts, room on the left."""

    pitch: int
    side: int
    font: int
    left: int
    day_gap: int


_LARGE = Sizes(pitch=20, side=15, font=12, left=170, day_gap=12)
_SMALL = Sizes(pitch=9, side=7, font=8, left=26, day_gap=6)


@dataclass(frozen=True)
class Label:
    """A text at a place, and where the place is: ``start``, ``middle`` or ``end`` of the text."""

    x: float
    y: float
    text: str
    anchor: str
    strong: bool = False


@dataclass(frozen=True)
class Row:
    """The place of a learner's row, and what is said where one points at it."""

    y: float
    said: str


@dataclass(frozen=True)
class Panel:
    """One drawing; ``paths`` has one path for all cells of a state."""

    width: float
    height: float
    font: int
    pitch: int
    left: int
    summary: str
    labels: tuple[Label, ...]
    rows: tuple[Row, ...]
    paths: tuple[tuple[Look, str], ...]


@dataclass(frozen=True)
class Sample:
    """One entry of the legend."""

    look: Look
    path: str


LEGEND_SIDE = 12


def legend() -> tuple[Sample, ...]:
    """The shapes of the states, one cell each."""
    return tuple(Sample(each, _shape(each.state, 0, 0, LEGEND_SIDE)) for each in LOOKS)


def panels(graded: Sequence[Marks]) -> tuple[Panel, ...]:
    """The figure, in one drawing or in several; the learners with the most points are at the top."""
    learners = by_points(graded)
    tasks = sorted(
        {task.name for marks in learners for day in marks.days for task in day.tasks}, key=in_order
    )
    if not tasks:
        return ()
    sizes, rows = (_LARGE, NAMED) if len(learners) <= NAMED else (_SMALL, PANEL_ROWS)
    starts = range(0, len(learners), rows)
    return tuple(_panel(learners[start : start + rows], start, tasks, sizes) for start in starts)


def _panel(learners: Sequence[Marks], start: int, tasks: Sequence[str], sizes: Sizes) -> Panel:
    columns = _columns(tasks, sizes)
    top = 3 * sizes.font + 6
    shapes: dict[TaskState, list[str]] = {each.state: [] for each in LOOKS}
    rows = []
    for index, marks in enumerate(learners):
        y = top + index * sizes.pitch
        rows.append(Row(y, f"{start + index + 1}. {learner_name(marks)}: {marks.percent:.0f} %"))
        for task in (task for day in marks.days for task in day.tasks):
            shapes[task.state].append(_shape(task.state, columns[task.name], y, sizes.side))
    last = start + len(learners)
    return Panel(
        width=max(columns.values()) + sizes.pitch + 2,
        height=top + len(learners) * sizes.pitch + 2,
        font=sizes.font,
        pitch=sizes.pitch,
        left=sizes.left,
        summary=f"Learners {start + 1} to {last}, most points first, and the state of each of {len(tasks)} tasks",
        labels=(*_heads(columns, sizes), *_sides(learners, start, top, sizes)),
        rows=tuple(rows),
        paths=tuple((each, "".join(shapes[each.state])) for each in LOOKS if shapes[each.state]),
    )


def _columns(tasks: Sequence[str], sizes: Sizes) -> dict[str, float]:
    """Where each task's column begins; days are set apart."""
    places: dict[str, float] = {}
    x, before = float(sizes.left), ""
    for name in tasks:
        day = name.rpartition(".")[0]
        if before and day != before:
            x += sizes.day_gap
        places[name] = x
        x, before = x + sizes.pitch, day
    return places


def _heads(columns: dict[str, float], sizes: Sizes) -> list[Label]:
    """The day above its first column, and each task's number above its own."""
    labels, before = [], ""
    for name, x in columns.items():
        day, _, number = name.rpartition(".")
        if day != before:
            labels.append(Label(x, sizes.font + 1, line(day, 12), "start", strong=True))
        labels.append(Label(x + sizes.side / 2, 2 * sizes.font + 5, line(number, 4), "middle"))
        before = day
    return labels


def _sides(learners: Sequence[Marks], start: int, top: float, sizes: Sizes) -> list[Label]:
    """Names where there is room for them, else the number of each fifth row."""
    labels = []
    for index, marks in enumerate(learners):
        y = top + index * sizes.pitch + sizes.side / 2 + sizes.font * 0.36
        place = start + index + 1
        if sizes is _LARGE:
            labels.append(Label(sizes.left - 8, y, line(learner_name(marks), 22), "end"))
        elif place % STEP_OF_NUMBERS == 0 or index == 0:
            labels.append(Label(sizes.left - 5, y, str(place), "end"))
    return labels


def _shape(state: TaskState, x: float, y: float, side: float) -> str:
    """The outline of a cell: a square, a triangle, an hourglass, a small square, or a bar."""
    x, s = round(x, 2), side
    if state == TaskState.PASSED:
        return f"M{x:g} {y:g}h{s:g}v{s:g}h{-s:g}z"
    if state == TaskState.WRONG:
        return f"M{x:g} {y:g}v{s:g}h{s:g}z"
    if state == TaskState.CRASHED:
        return f"M{x:g} {y:g}h{s:g}l{-s:g} {s:g}h{s:g}z"
    if state == TaskState.NOT_STARTED:
        third = s / 3
        return f"M{x + third:g} {y + third:g}h{third:.3g}v{third:.3g}h{-third:.3g}z"
    return f"M{x:g} {y + 0.4 * s:g}h{s:g}v{0.2 * s:.3g}h{-s:g}z"
