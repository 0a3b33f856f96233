"""The colors of the course's pictures, and matplotlib's settings for them: one style for book and notebooks."""

from __future__ import annotations

from typing import Any

COLORS = {
    "ink": "#22272e",
    "muted": "#66707a",
    "line": "#c9cfd4",
    "paper": "#fcfbf8",
    "blue": "#2f6db5",
    "orange": "#c8601a",
    "green": "#2c7f54",
    "red": "#b3372f",
    "purple": "#7a4f9e",
    "yellow": "#a67c00",
}
"""One dark tone per series, which readers who see few colors can tell apart, too."""
PALE = {
    "ink": "#e4e6e8",
    "muted": "#eef0f1",
    "line": "#f4f5f5",
    "paper": "#ffffff",
    "blue": "#dbe8f6",
    "orange": "#fae4d4",
    "green": "#d9eee2",
    "red": "#f7dcd9",
    "purple": "#ebe0f3",
    "yellow": "#f8edc9",
}
"""A pale tone of each for fills."""
SERIES = ("blue", "orange", "green", "purple", "red", "yellow")

SETTINGS: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": COLORS["muted"],
    "axes.facecolor": COLORS["paper"],
    "axes.grid": False,
    "axes.labelcolor": COLORS["ink"],
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "figure.facecolor": COLORS["paper"],
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "grid.color": COLORS["line"],
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "savefig.facecolor": COLORS["paper"],
    # Text as paths looks the same on every machine; the salt makes the ids of one drawing the same each time.
    "svg.fonttype": "path",
    "svg.hashsalt": "tiny-llm",
    "text.color": COLORS["ink"],
    "xtick.color": COLORS["muted"],
    "xtick.labelsize": 8.5,
    "ytick.color": COLORS["muted"],
    "ytick.labelsize": 8.5,
}
"""Of ``matplotlib.rcParams``; the cycle of colors, which is an object of matplotlib's, is set beside them."""
FULL_WIDTH = 7.2  # inches
