"""The seam: the model calls `attend` and does not know what stands behind it."""

from matplotlib.axes import Axes
from style import COLORS, arrow, box, diagram, label, save

BEHIND = (
    ("no cache", "plain causal attention", "1.5", "blue"),
    ("dense cache", "one request", "2.1", "green"),
    ("batching cache", "rows of one batch", "2.6", "green"),
    ("paged pool", "pages and a block table", "3.2", "orange"),
    ("ragged step", "tokens of many requests", "3.5", "orange"),
    ("shared prefixes", "a trie of pages", "4.1", "purple"),
    ("documents", "pages of many documents", "4.5", "purple"),
)
SEAM = 3.2
PARTS = ("norm", "query, key, value", "rotate", "attend", "output", "norm, MLP")


def draw() -> None:
    fig, ax = diagram(height=3.7)
    ax.set_ylim(0.2, 3.9)
    _model(ax)
    _behind(ax)
    save(fig, "preface_seam")


def _model(ax: Axes) -> None:
    label(ax, 0.3, 3.65, "model.py: written once, in Week 1", align="left", bold=True)
    box(ax, 0.3, 0.35, 1.95, 3.1, color="muted")
    label(ax, 1.27, 3.27, "one block, repeated", color="muted", size=8.5)
    for index, part in enumerate(PARTS):
        y = 2.72 - index * 0.45
        box(ax, 0.48, y, 1.59, 0.34, part, color="red" if part == "attend" else "blue", bold=part == "attend")
        if index:
            arrow(ax, (1.27, y + 0.45), (1.27, y + 0.34))


def _behind(ax: Axes) -> None:
    label(ax, 4.15, 3.65, "behind it: what the engine becomes", align="left", bold=True)
    ax.plot([SEAM, SEAM], [0.3, 3.45], color=COLORS["red"], linewidth=1.4, linestyle=(0, (4, 3)))
    label(ax, SEAM, 3.65, "the seam", color="red", bold=True)
    arrow(ax, (2.12, 1.62), (3.58, 1.62))
    arrow(ax, (3.58, 1.46), (2.12, 1.46))
    label(ax, 2.36, 1.88, "query,\nkey, value", size=8, color="muted", align="left")
    label(ax, 2.36, 1.28, "output", size=8, color="muted", align="left")
    ax.plot([3.72, 3.62, 3.62, 3.72], [0.35, 0.35, 3.42, 3.42], color=COLORS["muted"], linewidth=1.2)
    for index, (name, what, day, color) in enumerate(BEHIND):
        y = 3.07 - index * 0.46
        box(ax, 4.15, y, 2.85, 0.38, color=color)
        label(ax, 4.25, y + 0.19, name, align="left", bold=True, size=8.5)
        label(ax, 5.42, y + 0.19, what, align="left", size=8)
        label(ax, 4.07, y + 0.19, day, color="muted", align="right", size=8)


if __name__ == "__main__":
    draw()
