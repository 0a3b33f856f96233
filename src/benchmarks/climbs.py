"""A picture of ladders whose rows go on from one another: bars on a scale of factors, narrow enough for a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.ladder import Ladder
from benchmarks.picture import COLOURS, INK, MUTED, PAPER, set_wide_title, stack
from benchmarks.report import rows_of
from benchmarks.rounds import Record, Samples

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 4.6
ROW_HEIGHT, LADDER_HEIGHT = 0.25, 0.75
ROOM = 0.42
"""What is kept free on the right, for the longest bar's numbers: as a share of the scale before it."""


def draw_climbs(ladders: Sequence[Ladder], record: Record, caption: str) -> bytes:
    """The ladders that have rows, one under the other, all on the same scale of factors, as SVG.

    Args:
        ladders: all are compared by the same quantity.
        record: has rows of one of them at least.
        caption: the machine.

    Raises:
        CourseError: matplotlib is not installed.
    """
    drawn = [(ladder, rows) for ladder in ladders if (rows := rows_of(ladder, record))]
    ends = scale([row.median(ladder.quantities[0].name) for ladder, rows in drawn for row in rows])
    parts = [
        (
            LADDER_HEIGHT + ROW_HEIGHT * len(rows),
            partial(_draw, ladder=ladder, rows=rows, ends=ends, colour=COLOURS[number % len(COLOURS)]),
        )
        for number, (ladder, rows) in enumerate(drawn)
    ]
    return stack(parts, caption.replace(" · torch", "\ntorch"), WIDTH, below=0.4)


def scale(values: Sequence[float]) -> tuple[float, float]:
    """Where bars begin, 1 or a lower power of ten; and the highest value, ten times the beginning at least."""
    lowest = min((value for value in values if value > 0), default=1.0)
    bottom = min(1.0, 10.0 ** math.floor(math.log10(lowest)))
    return bottom, max(10 * bottom, *values)


def _draw(ax: Axes, ladder: Ladder, rows: Sequence[Samples], ends: tuple[float, float], colour: str) -> None:
    main, (bottom, top) = ladder.quantities[0], ends
    values = [row.median(main.name) for row in rows]
    ax.set_xscale("log")
    ax.set_xlim(bottom, top * (top / bottom) ** ROOM)
    ax.barh(
        range(len(rows)), [max(value - bottom, 0) for value in values], left=bottom, color=colour, height=0.66
    )
    ax.set_yticks(range(len(rows)), [row.case.label for row in rows])
    ax.invert_yaxis()
    ax.tick_params(axis="both", which="both", length=0)
    set_wide_title(ax, f"{ladder.title}\n{main.heading}, × the row before")
    for y, (value, before) in enumerate(zip(values, [0.0, *values], strict=False)):
        ratio = f"  × {value / before:.2f}" if before else ""
        ax.annotate(
            f"{main.show(value)}{ratio}",
            (max(value, bottom), y),
            (4, 0),
            textcoords="offset points",
            va="center",
            size=8.5,
            color=INK,
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
        )
    _draw_powers(ax, bottom, top)


def _draw_powers(ax: Axes, bottom: float, top: float) -> None:
    """A line for each power of ten, behind the bars: they are what shows the scale."""
    powers = range(round(math.log10(bottom)), math.floor(math.log10(top)) + 1)
    ax.set_xticks([10.0**power for power in powers], [f"{10.0**power:,g}" for power in powers])
    ax.set_xticks([], minor=True)
    ax.grid(axis="x", color="#c9cfd4", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.tick_params(axis="x", labelsize=8, labelcolor=MUTED)
