"""Rotary positions: pairs turning at different speeds, the two pairings, and scores that know distances only."""

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Arc, Circle, Rectangle
from style import COLORS, PALE, arrow, diagram, label, matrix, new_figure, save

from tiny_llm.positional_encoding import RoPE, rope_tables

HEAD_DIM, BASE = 8, 100.0
POSITIONS = 8
PAIR_COLORS = ("blue", "orange", "green", "purple")
CELL = 0.36


def draw() -> None:
    _draw_turns()
    _draw_pairings()
    _draw_distance()


def _draw_turns() -> None:
    cos, sin = rope_tables(HEAD_DIM, POSITIONS, BASE)
    fig, ax = diagram(height=3.3)
    for p in range(POSITIONS):
        label(ax, 2.12 + p * 0.66, 3.1, str(p), size=8.5)
    label(ax, 1.72, 3.1, "position", align="right", size=8.5, color="muted")
    for i, color in enumerate(PAIR_COLORS):
        y = 2.62 - i * 0.7
        label(ax, 0.2, y + 0.11, f"pair {i}", align="left", bold=True, color=color)
        label(ax, 0.2, y - 0.11, f"{BASE ** (-2 * i / HEAD_DIM):.3f} rad per token", align="left", size=8)
        for p in range(POSITIONS):
            _dial(ax, 2.12 + p * 0.66, y, float(cos[p, i]), float(sin[p, i]), color)
    save(fig, "week_1_day_2")


def _dial(ax: Axes, x: float, y: float, cos: float, sin: float, color: str) -> None:
    """A circle with its starting direction and a hand at the angle."""
    radius = 0.27
    ax.add_patch(Circle((x, y), radius, facecolor=PALE[color], edgecolor=COLORS["line"], linewidth=0.8))
    ax.plot([x, x + radius], [y, y], color=COLORS["muted"], linewidth=0.8, linestyle=(0, (2, 2)))
    arrow(ax, (x, y), (x + radius * cos, y + radius * sin), color=color)


def _draw_pairings() -> None:
    fig, ax = diagram(height=1.6)
    half = [(i, i + HEAD_DIM // 2) for i in range(HEAD_DIM // 2)]
    neighbors = [(2 * i, 2 * i + 1) for i in range(HEAD_DIM // 2)]
    _pairing(ax, 0.3, "half-split", half)
    _pairing(ax, 4.02, "interleaved", neighbors)
    save(fig, "week_1_day_2_pairings")


def _pairing(ax: Axes, x: float, name: str, pairs: list[tuple[int, int]]) -> None:
    """The numbers of one head with an arc over each pair."""
    y = 0.42
    for i, (pair, color) in enumerate(zip(pairs, PAIR_COLORS, strict=True)):
        for place in pair:
            corner = (x + place * CELL, y)
            ax.add_patch(
                Rectangle(corner, CELL, CELL, facecolor=PALE[color], edgecolor=COLORS[color], linewidth=0.8)
            )
            label(ax, corner[0] + CELL / 2, y + CELL / 2, str(i), size=9, bold=True)
            label(ax, corner[0] + CELL / 2, y - 0.13, f"x[{place}]", size=8, color="muted")
        middle, span = x + (sum(pair) + 1) / 2 * CELL, (pair[1] - pair[0]) * CELL
        height = 0.4 if span < 1 else 0.9
        ax.add_patch(
            Arc((middle, y + CELL + 0.02), span, height, theta1=0, theta2=180, color=COLORS[color], lw=1.3)
        )
    label(ax, x, 1.42, name, align="left", bold=True)


def _draw_distance() -> None:
    torch.manual_seed(2)
    query, key = torch.randn(1, 1, 1, HEAD_DIM), torch.randn(1, 1, 1, HEAD_DIM)
    rope = RoPE(HEAD_DIM, 64, BASE)
    queries = rope(query.expand(1, 64, 1, HEAD_DIM), slice(0, 64))[0, :, 0]
    keys = rope(key.expand(1, 64, 1, HEAD_DIM), slice(0, 64))[0, :, 0]
    scores = (queries @ keys.T).numpy()

    fig, (left, right) = new_figure(height=3.1, cols=2, width_ratios=(1, 1.15))
    size = 7
    names = [str(p) for p in range(size)]
    matrix(
        left,
        scores[:size, :size],
        texts=_signed(scores[:size, :size]),
        row_labels=names,
        col_labels=names,
        size=8,
    )
    left.set_xlabel("position of the key")
    left.xaxis.set_label_position("top")
    left.set_ylabel("position of the query")
    for start, marker, color in ((20, "o", "blue"), (40, "s", "orange"), (60, "^", "green")):
        distance = np.arange(0, 20)
        right.plot(
            distance,
            scores[start, start - distance],
            marker=marker,
            markevery=(0 if start == 20 else 1 if start == 40 else 2, 3),
            markersize=5,
            linewidth=1.2,
            color=COLORS[color],
            label=f"query at {start}",
        )
    right.axhline(0, color=COLORS["line"], linewidth=0.8, zorder=0)
    right.set(
        xlabel="how far the key lies behind the query",
        ylabel="score",
        xticks=range(0, 20, 4),
        ylim=(-4.8, 2.2),
    )
    right.legend(loc="upper left", ncols=2)
    save(fig, "week_1_day_2_distance")


def _signed(values: np.ndarray) -> list[list[str]]:
    return [[f"{value:.1f}".replace("-", "−") for value in row] for row in values]


if __name__ == "__main__":
    draw()
