"""The one style of the book's figures, and how they are saved.

Every script in this folder draws the pictures whose names start with its own. Importing this module puts
the reference on the path, so that ``import tiny_llm`` after it is the reference and not the learner's code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from coursekit.palette import COLORS, FULL_WIDTH, PALE, SERIES, SETTINGS

ROOT = Path(__file__).resolve().parents[2]
FOLDER_VARIABLE = "TINY_LLM_FIGURES"

sys.path.insert(0, str(ROOT / "solutions"))

mpl.rcdefaults()
plt.style.use({**SETTINGS, "axes.prop_cycle": cycler(color=[COLORS[name] for name in SERIES])})

MONOSPACE = "DejaVu Sans Mono"


def new_figure(
    width: float = FULL_WIDTH, height: float = 3.0, rows: int = 1, cols: int = 1, **options: Any
) -> tuple[Figure, Any]:
    """A figure of `width` x `height` inches with one axes, or an array of them; `options`: of `subplots`."""
    return plt.subplots(rows, cols, figsize=(width, height), layout="constrained", **options)


def diagram(width: float = FULL_WIDTH, height: float = 3.0) -> tuple[Figure, Axes]:
    """A bare sheet: one axes without frame whose units are inches, from (0, 0) at the bottom left."""
    fig = plt.figure(figsize=(width, height))
    ax = fig.add_axes((0.0, 0.0, 1.0, 1.0))
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    return fig, ax


def box(
    ax: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str = "",
    *,
    color: str = "blue",
    dashed: bool = False,
    size: float = 9,
    mono: bool = False,
    bold: bool = False,
) -> None:
    """A rounded box with its bottom left corner at (`x`, `y`) and `text` in its middle, in inches."""
    ax.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=PALE[color],
            edgecolor=COLORS[color],
            linewidth=1.1,
            linestyle=(0, (4, 2.5)) if dashed else "-",
        )
    )
    ax.text(
        x + width / 2,
        y + height / 2,
        text,
        ha="center",
        va="center",
        size=size,
        family=MONOSPACE if mono else None,
        weight="bold" if bold else None,
        linespacing=1.35,
    )


def label(
    ax: Axes,
    x: float,
    y: float,
    text: str,
    *,
    color: str = "ink",
    size: float = 9,
    align: str = "center",
    mono: bool = False,
    bold: bool = False,
) -> None:
    """Text at (`x`, `y`), centered upwards and downwards; `align` is "left", "center" or "right"."""
    ax.text(
        x,
        y,
        text,
        ha=align,
        va="center",
        size=size,
        color=COLORS[color],
        family=MONOSPACE if mono else None,
        weight="bold" if bold else None,
        linespacing=1.35,
    )


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    color: str = "muted",
    bend: float = 0.0,
    both: bool = False,
    dashed: bool = False,
) -> None:
    """An arrow from `start` to `end`; `bend` curves it, `both` gives it two heads."""
    ax.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="<|-|>" if both else "-|>",
            mutation_scale=9,
            shrinkA=0,
            shrinkB=0,
            linewidth=1.2,
            color=COLORS[color],
            linestyle=(0, (3, 2)) if dashed else "-",
            connectionstyle=f"arc3,rad={bend}",
        )
    )


def matrix(
    ax: Axes,
    values: np.ndarray,
    *,
    texts: Sequence[Sequence[str]] | None = None,
    row_labels: Sequence[str] = (),
    col_labels: Sequence[str] = (),
    color: str = "blue",
    fills: Sequence[Sequence[str]] | None = None,
    size: float = 9,
) -> None:
    """A small grid of numbers, first row on top, whose cells are the darker the greater the value.

    `values` is [rows, cols]; a value that isn't finite gets no tint. `texts` are the words in the cells (by
    default the values with two places); `fills` names a color per cell instead ("" for none).
    """
    rows, cols = values.shape
    finite = np.isfinite(values)
    top = float(np.abs(values[finite]).max()) if finite.any() else 1.0
    ramp = mpl.colors.LinearSegmentedColormap.from_list("ramp", [COLORS["paper"], PALE[color], COLORS[color]])
    for r in range(rows):
        for c in range(cols):
            tint = abs(float(values[r, c])) / (top or 1.0) * 0.75 if finite[r, c] else 0.0
            face = ramp(tint) if fills is None else PALE[fills[r][c]] if fills[r][c] else COLORS["paper"]
            ax.add_patch(Rectangle((c, r), 1, 1, facecolor=face, edgecolor=COLORS["line"], linewidth=0.8))
            words = texts[r][c] if texts is not None else f"{values[r, c]:.2f}"
            ink = "#ffffff" if fills is None and tint > 0.62 else COLORS["ink"]
            ax.text(c + 0.5, r + 0.5, words, ha="center", va="center", size=size, color=ink)
    ax.set(xlim=(0, cols), ylim=(rows, 0), aspect="equal")
    ax.set_xticks([c + 0.5 for c in range(len(col_labels))], col_labels)
    ax.set_yticks([r + 0.5 for r in range(len(row_labels))], row_labels)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


def save(fig: Figure, name: str) -> Path:
    """Write `fig` as book/src/figures/`name`.svg, the same bytes each time, and close it.

    The variable TINY_LLM_FIGURES names another folder to write to: the check that redraws them all uses it.
    """
    folder = Path(os.environ.get(FOLDER_VARIABLE) or ROOT / "book" / "src" / "figures")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.svg"
    part = path.with_suffix(".part")
    fig.savefig(part, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(fig)
    os.replace(part, path)
    return path
