"""Causal masks aligned at either corner, and query heads that share key-value heads."""

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, arrow, box, diagram, label, matrix, new_figure, save

from tiny_llm.attention import causal_mask

GROUPS = ("blue", "orange", "green")


def draw() -> None:
    draw_masks()
    draw_heads()


def draw_masks() -> None:
    fig, (bottom_right, top_left) = new_figure(height=2.7, cols=2)
    fig.set_layout_engine("constrained", wspace=0.06)
    misaligned = torch.triu(torch.full((3, 5), -torch.inf), diagonal=1)
    draw_mask(bottom_right, causal_mask(3, 5), "bottom right: row i sees keys 0 … S − L + i")
    draw_mask(top_left, misaligned, "top left: row i sees keys 0 … i")
    save(fig, "week_1_day_3_masks")


def draw_mask(ax: Axes, mask: torch.Tensor, caption: str) -> None:
    L, S = mask.shape
    seen = (mask == 0).tolist()
    matrix(
        ax,
        mask.numpy(),
        texts=[["0" if cell else "−∞" for cell in row] for row in seen],
        fills=[["blue" if cell else "muted" for cell in row] for row in seen],
        row_labels=[f"query {i}, at {S - L + i}" for i in range(L)],
        col_labels=[str(j) for j in range(S)],
    )
    # Where a query meets its own key: in the last L columns, whatever the mask says.
    for i in range(L):
        own = (S - L + i + 0.04, i + 0.04)
        ax.add_patch(Rectangle(own, 0.92, 0.92, fill=False, edgecolor=COLORS["orange"], linewidth=2))
    ax.set_xlabel(caption)
    ax.text(0, -0.55, "key", ha="right", va="center", size=8.5, color=COLORS["muted"])


def draw_heads() -> None:
    fig, ax = diagram(height=3.6)
    label(ax, 0.15, 3.38, "9 query heads on 3 key-value heads", align="left", bold=True)
    for h in range(9):
        group = h // 3
        x = 0.15 + 0.4 * h
        box(ax, x, 2.6, 0.34, 0.42, str(h), color=GROUPS[group], size=10)
        arrow(ax, (x + 0.17, 2.57), (0.72 + 1.2 * group, 1.73), color=GROUPS[group])
    for j, color in enumerate(GROUPS):
        box(ax, 0.2 + 1.2 * j, 1.28, 1.04, 0.42, f"key-value {j}", color=color)
    label(ax, 0.15, 0.92, "head h reads key-value head h // 3", align="left", mono=True, size=8.5)
    label(ax, 0.15, 0.55, "The cache holds 3 heads per token, not 9:", align="left", color="muted")
    label(ax, 0.15, 0.3, "a third of the bytes to keep and to read.", align="left", color="muted")

    label(ax, 4.2, 3.38, "one product a group, no copied keys", align="left", bold=True)
    for row in range(6):
        head, token = divmod(row, 2)
        y = 2.72 - 0.36 * row
        ax.add_patch(Rectangle((4.9, y), 1.0, 0.36, facecolor=PALE["blue"], edgecolor=COLORS["blue"]))
        label(ax, 5.4, y + 0.18, f"token {token}", size=8.5)
        if token == 0:
            label(ax, 4.82, y, f"head {head}", align="right", size=8.5)
            if head:
                ax.plot([4.9, 5.9], [y + 0.36, y + 0.36], color=COLORS["blue"], linewidth=2.2)
    label(ax, 5.4, 0.68, "[H/Hkv · L, D]", mono=True, size=8.5)
    label(ax, 6.05, 1.98, "·", size=16)
    ax.add_patch(Rectangle((6.2, 1.48), 0.9, 1.0, facecolor=PALE["blue"], edgecolor=COLORS["blue"]))
    label(ax, 6.65, 1.98, "keys of\nhead 0,\ntransposed", size=8.5)
    label(ax, 6.65, 1.28, "[D, S]", mono=True, size=8.5)
    label(ax, 4.2, 0.3, "L = 2 tokens in 3 heads: a matrix of 6 rows", align="left", color="muted")
    save(fig, "week_1_day_3_heads")


if __name__ == "__main__":
    draw()
