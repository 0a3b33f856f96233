"""The ladders as a picture: bars side by side, in the book's colours."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.ladder import Ladder
from benchmarks.report import rows_of
from benchmarks.rounds import Record, Samples
from coursekit.errors import CourseError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, PAPER = "#22272e", "#66707a", "#fcfbf8"
COLOURS = ("#2f6db5", "#c8601a", "#2c7f54")
SETTINGS: Any = {
    "axes.edgecolor": MUTED,
    "axes.facecolor": PAPER,
    "axes.spines.bottom": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.facecolor": PAPER,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "path",
    "text.color": INK,
}
WIDTH = 7.2
ROW_HEIGHT, LADDER_HEIGHT = 0.28, 0.75


def draw(ladders: Sequence[Ladder], record: Record, caption: str) -> bytes:
    """All ladders that have rows, one under the other, as SVG.

    Raises:
        CourseError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise CourseError("the picture needs matplotlib: `pdm install` brings it") from None
    drawn = [(ladder, rows) for ladder in ladders if (rows := rows_of(ladder, record))]
    heights = [LADDER_HEIGHT + ROW_HEIGHT * len(rows) for _, rows in drawn]
    with mpl.rc_context(SETTINGS):
        fig = Figure(figsize=(WIDTH, sum(heights) + 0.3), layout="constrained")
        axes = fig.subplots(len(drawn), 1, squeeze=False, height_ratios=heights)[:, 0]
        for number, (ax, (ladder, rows)) in enumerate(zip(axes, drawn, strict=True)):
            _draw_ladder(ax, ladder, rows, COLOURS[number % len(COLOURS)])
        fig.supxlabel(caption, fontsize=7.5, color=MUTED)
        buffer = io.BytesIO()
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _draw_ladder(ax: Axes, ladder: Ladder, rows: Sequence[Samples], colour: str) -> None:
    main = ladder.quantities[0]
    values = [row.median(main.name) for row in rows]
    ax.barh(range(len(rows)), values, color=colour, height=0.62)
    ax.set_yticks(range(len(rows)), [row.case.label for row in rows])
    ax.invert_yaxis()
    ax.tick_params(length=0)
    ax.set_xticks([])
    ax.set_xlim(0, max(values) * 1.25)
    ax.set_title(f"{ladder.title}\n{main.heading}", linespacing=1.4)
    for y, value in enumerate(values):
        ratio = f"  ({value / values[0]:.2f} ×)" if y and values[0] else ""
        ax.text(value, y, f" {main.show(value)}{ratio}", va="center", size=8.5)
