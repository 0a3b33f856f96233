"""The ladders as a picture: bars side by side, in the book's colours."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.ladder import Ladder
from benchmarks.report import rows_of
from benchmarks.rounds import Record, Samples
from coursekit.errors import CourseError
from coursekit.palette import COLORS, SERIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, PAPER = (COLORS[name] for name in ("ink", "muted", "paper"))
COLOURS = tuple(COLORS[name] for name in SERIES[:3])
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

Part = tuple[float, Callable[["Axes"], None]]
"""A part of a picture: its height in inches, and what draws it."""


def stack(parts: Sequence[Part], caption: str, width: float = WIDTH, below: float = 0.3) -> bytes:
    """The parts one under the other, and the caption under them, as SVG.

    Args:
        parts: at least one.
        caption: the machine.
        width: of the picture; and below: the caption's height, both in inches.

    Raises:
        CourseError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise CourseError("the picture needs matplotlib: `pdm install` brings it") from None
    heights = [height for height, _ in parts]
    with mpl.rc_context(SETTINGS):
        fig = Figure(figsize=(width, sum(heights) + below), layout="constrained")
        axes = fig.subplots(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
        for ax, (_, draw_part) in zip(axes, parts, strict=True):
            draw_part(ax)
        fig.supxlabel(caption, fontsize=7.5, color=MUTED)
        buffer = io.BytesIO()
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def set_wide_title(ax: Axes, text: str) -> None:
    """A title that begins at the left edge of the picture, where the labels of the rows do."""
    ax.set_title("\n".join(" " for _ in text.splitlines()), linespacing=1.4)  # keeps its place free
    above: Any = {"xycoords": ("figure fraction", "axes fraction"), "textcoords": "offset points"}
    ax.annotate(text, (0, 1), (4, 5), weight="bold", size=10, linespacing=1.4, **above)


def draw(ladders: Sequence[Ladder], record: Record, caption: str) -> bytes:
    """All ladders that have rows, as :func:`stack` gives them."""
    drawn = [(ladder, rows) for ladder in ladders if (rows := rows_of(ladder, record))]
    parts = [
        (
            LADDER_HEIGHT + ROW_HEIGHT * len(rows),
            partial(_draw_ladder, ladder=ladder, rows=rows, colour=COLOURS[number % len(COLOURS)]),
        )
        for number, (ladder, rows) in enumerate(drawn)
    ]
    return stack(parts, caption)


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
