"""The gate function silu beside relu, and the way of a vector through the gated MLP."""

import numpy as np
import torch
from matplotlib.axes import Axes
from style import COLORS, arrow, box, diagram, label, save

from tiny_llm.layers import silu


def draw() -> None:
    fig, ax = diagram(height=3.5)
    curve = fig.add_axes((0.06, 0.15, 0.29, 0.72))
    draw_curve(curve)
    draw_mlp(ax)
    save(fig, "week_1_day_4")


def draw_curve(ax: Axes) -> None:
    x = np.linspace(-6, 4, 2001)
    y = silu(torch.from_numpy(x)).numpy()
    ax.plot(x, np.maximum(x, 0), color=COLORS["muted"], linestyle="--", linewidth=1.4)
    ax.plot(x, y, color=COLORS["blue"])
    ax.axhline(0, color=COLORS["line"], linewidth=0.8, zorder=0)
    ax.axvline(0, color=COLORS["line"], linewidth=0.8, zorder=0)
    lowest = int(y.argmin())
    ax.annotate(
        f"lowest: {y[lowest]:.2f}\nat x = {x[lowest]:.2f}".replace("-", "−"),
        (x[lowest], y[lowest]),
        xytext=(-5.0, 0.85),
        size=8.5,
        arrowprops={"arrowstyle": "-", "color": COLORS["muted"]},
    )
    ax.text(1.7, 2.9, "relu", ha="right", size=9, color=COLORS["muted"])
    ax.text(2.5, 1.9, "silu", ha="left", size=9, color=COLORS["blue"])
    ax.set(xlim=(-6, 4), ylim=(-0.6, 4))


def draw_mlp(ax: Axes) -> None:
    box(ax, 2.85, 1.5, 0.62, 0.5, "x", bold=True)
    label(ax, 3.16, 1.32, "576", mono=True, size=8.5)
    arrow(ax, (3.47, 1.75), (3.72, 1.75))
    box(ax, 3.72, 0.62, 0.62, 2.26, color="purple")
    label(ax, 4.03, 1.75, "gate_up", mono=True, size=8.5)
    label(ax, 4.03, 0.44, "3072 × 576", mono=True, size=8)
    arrow(ax, (4.34, 2.32), (4.6, 2.32))
    arrow(ax, (4.34, 1.18), (4.6, 1.18))
    box(ax, 4.6, 2.07, 0.6, 0.5, "gate", color="orange")
    label(ax, 4.9, 2.72, "first 1536", size=8.5)
    box(ax, 4.6, 0.93, 0.6, 0.5, "up", color="green")
    label(ax, 4.9, 0.76, "last 1536", size=8.5)
    arrow(ax, (5.2, 2.32), (5.36, 2.32))
    box(ax, 5.36, 2.07, 0.5, 0.5, "silu", color="orange")
    arrow(ax, (5.61, 2.07), (5.61, 1.95))
    box(ax, 5.43, 1.56, 0.36, 0.38, "×", color="yellow", size=12)
    ax.plot([5.2, 5.61], [1.18, 1.18], color=COLORS["muted"], linewidth=1.2)
    arrow(ax, (5.61, 1.18), (5.61, 1.55))
    arrow(ax, (5.79, 1.75), (6.02, 1.75))
    box(ax, 6.02, 1.12, 0.5, 1.26, color="purple")
    label(ax, 6.27, 1.75, "down", mono=True, size=8.5)
    label(ax, 6.27, 0.94, "576 × 1536", mono=True, size=8)
    arrow(ax, (6.52, 1.75), (6.72, 1.75))
    label(ax, 6.94, 1.75, "576", mono=True, size=8.5)


if __name__ == "__main__":
    draw()
