"""The engines as a picture: for each workload bars side by side, the course's engine in its own colour."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.peers.measuring import Engine, Rounds, ratio
from benchmarks.peers.workloads import Workload
from benchmarks.picture import COLOURS, set_wide_title, stack

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OWN, OTHER = COLOURS[1], COLOURS[0]
ROW_HEIGHT, WORKLOAD_HEIGHT = 0.22, 0.5


def draw_peers(engines: Sequence[Engine], rounds: Rounds, own: str, caption: str) -> bytes:
    """All workloads that were measured, one under the other, as SVG; each has a scale of its own.

    Args:
        engines: the bars.
        rounds: how they were measured; at least one of its workloads was.
        own: the name of the engine that is compared with the best other one.
        caption: the machine.

    Raises:
        CourseError: matplotlib is not installed.
    """
    measured = {
        workload: [each for each in engines if workload.name in each.turns] for workload in rounds.workloads
    }
    parts = [
        (
            WORKLOAD_HEIGHT + ROW_HEIGHT * len(rows),
            partial(_draw_workload, workload=workload, rows=rows, own=own, quick=rounds.quick),
        )
        for workload, rows in measured.items()
        if rows
    ]
    return stack(parts, caption)


def _draw_workload(ax: Axes, workload: Workload, rows: Sequence[Engine], own: str, quick: bool) -> None:
    values = [row.speed(workload.name) or 0.0 for row in rows]
    colours = [OWN if row.name == own else OTHER for row in rows]
    ax.barh(range(len(rows)), values, color=colours, height=0.68)
    ax.set_yticks(range(len(rows)), [row.label for row in rows])
    ax.invert_yaxis()
    ax.tick_params(length=0)
    ax.set_xticks([])
    ax.set_xlim(0, max(values) * 1.72)  # room for the longest note
    set_wide_title(ax, f"{workload.described(quick)} per second")
    times = ratio(rows, own, workload.name)
    for y, (row, value) in enumerate(zip(rows, values, strict=True)):
        note = f"  ({times:.2f} × best peer)" if row.name == own and times is not None else ""
        ax.text(value, y, f" {value:,.0f}{note}", va="center", size=8.5, in_layout=False)
