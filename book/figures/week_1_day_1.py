"""One query against three keys, step by step; and the shapes on their way through multi-head attention."""

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, arrow, box, diagram, label, save

from tiny_llm.attention import scaled_dot_product_attention, softmax

QUERY = [2.0, 0.0, 2.0, 0.0]
KEYS = [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]]
VALUES = [[10.0, 0.0, 0.0, 1.0], [0.0, 10.0, 0.0, 1.0], [0.0, 0.0, 10.0, 1.0]]
ROW = 0.32

HEADS = ("blue", "orange", "green")
STRIPE = 0.3
LANES = (("query", "L", 2, 3.02), ("key", "S", 3, 1.68), ("value", "S", 3, 0.34))


def draw() -> None:
    _draw_example()
    _draw_shapes()


def _draw_example() -> None:
    query, keys, values = torch.tensor([QUERY]), torch.tensor(KEYS), torch.tensor(VALUES)
    scores = keys @ query[0]
    weights = softmax(scores / 2)
    output = scaled_dot_product_attention(query, keys, values)

    fig, ax = diagram(height=2.3)
    low, high = 1.34, 2.02
    _grid(ax, 0.2, high, [QUERY], "query", "{:.0f}", "orange")
    _grid(ax, 0.2, low, KEYS, "keys", "{:.0f}", "blue", below=True)
    arrow(ax, (1.6, 0.86), (2.02, 0.86))
    _grid(ax, 2.1, low, scores[:, None].tolist(), "scores", "{:.0f}", "muted", below=True)
    arrow(ax, (2.52, 0.86), (3.02, 0.86))
    label(ax, 2.75, 1.01, "÷ √4", size=8.5)
    _grid(ax, 3.1, low, (scores / 2)[:, None].tolist(), "scaled", "{:.0f}", "muted", below=True)
    arrow(ax, (3.52, 0.86), (4.1, 0.86))
    label(ax, 3.79, 1.01, "softmax", size=8.5)
    _grid(ax, 4.18, low, weights[:, None].tolist(), "weights", "{:.2f}", "orange", width=0.46, below=True)
    label(ax, 4.88, 0.86, "×", size=13)
    _grid(ax, 5.14, low, VALUES, "values", "{:.0f}", "green", width=0.46, below=True)
    arrow(ax, (6.06, 1.4), (6.06, 1.64))
    _grid(ax, 5.14, high, output.tolist(), "output", "{:.2f}", "purple", width=0.46)
    save(fig, "week_1_day_1")


def _grid(
    ax: Axes,
    x: float,
    top: float,
    rows: list[list[float]],
    name: str,
    form: str,
    color: str,
    width: float = ROW,
    below: bool = False,
) -> None:
    """Cells of numbers whose first row begins at `top`, with their name above or below; zeros stay white."""
    for r, row in enumerate(rows):
        for c, number in enumerate(row):
            corner = (x + c * width, top - (r + 1) * ROW)
            face = PALE[color] if number else COLORS["paper"]
            ax.add_patch(
                Rectangle(corner, width, ROW, facecolor=face, edgecolor=COLORS[color], linewidth=0.7)
            )
            label(ax, corner[0] + width / 2, corner[1] + ROW / 2, form.format(number), size=8.5)
    middle = x + len(rows[0]) * width / 2
    label(ax, middle, top - len(rows) * ROW - 0.15 if below else top + 0.14, name, bold=True)


def _draw_shapes() -> None:
    fig, ax = diagram(height=3.9)
    for name, size, tokens, y in LANES:
        middle = y + tokens * 0.11
        _sheet(ax, 0.2, y, tokens, 0.85, "muted")
        label(ax, 0.2, y + tokens * 0.22 + 0.17, name, align="left", bold=True)
        label(ax, 0.62, y - 0.15, f"[B, {size}, E]", size=8, mono=True)
        arrow(ax, (1.11, middle), (1.62, middle))
        label(ax, 1.36, middle + 0.14, "linear", size=8.5)
        _stripes(ax, 1.68, y, tokens)
        label(ax, 2.13, y - 0.15, f"[B, {size}, H·D]", size=8, mono=True)
        arrow(ax, (2.64, middle), (3.1, middle))
        label(ax, 2.86, middle + 0.14, "split", size=8.5)
        _heads(ax, 3.16, y, tokens)
        label(ax, 3.64, y - 0.15, f"[B, H, {size}, D]", size=8, mono=True)
        arrow(ax, (4.2, middle), (4.58, middle))
    box(
        ax,
        4.62,
        0.26,
        1.02,
        3.44,
        "in each head:\n\nscores\n[L, S]\n\nsoftmax\nover S\n\n× values",
        color="purple",
    )
    _right_side(ax)
    save(fig, "week_1_day_1_heads")


def _right_side(ax: Axes) -> None:
    """From the heads' outputs down to the layer's output."""
    top, center, bottom = 3.02, 1.74, 0.46
    arrow(ax, (5.68, top + 0.22), (5.98, top + 0.22))
    _heads(ax, 6.03, top, 2)
    label(ax, 6.5, top - 0.15, "[B, H, L, D]", size=8, mono=True)
    arrow(ax, (6.5, top - 0.27), (6.5, center + 0.5))
    label(ax, 6.57, (top + center + 0.23) / 2, "merge", align="left", size=8.5)
    _stripes(ax, 6.05, center, 2)
    label(ax, 6.5, center - 0.15, "[B, L, H·D]", size=8, mono=True)
    arrow(ax, (6.5, center - 0.27), (6.5, bottom + 0.5))
    label(ax, 6.57, (center + bottom + 0.23) / 2, "linear", align="left", size=8.5)
    _sheet(ax, 6.07, bottom, 2, 0.85, "muted")
    label(ax, 6.5, bottom - 0.15, "[B, L, E]", size=8, mono=True)


def _sheet(ax: Axes, x: float, y: float, tokens: int, width: float, color: str, text: str = "") -> None:
    """A matrix with one row per token."""
    for t in range(tokens):
        ax.add_patch(
            Rectangle(
                (x, y + t * 0.22),
                width,
                0.22,
                facecolor=PALE[color],
                edgecolor=COLORS[color],
                linewidth=0.7,
            )
        )
        label(ax, x + width / 2, y + t * 0.22 + 0.105, text, size=8)


def _stripes(ax: Axes, x: float, y: float, tokens: int) -> None:
    """Three heads side by side in the rows of one matrix."""
    for h, color in enumerate(HEADS):
        _sheet(ax, x + h * STRIPE, y, tokens, STRIPE, color, f"{h}")


def _heads(ax: Axes, x: float, y: float, tokens: int) -> None:
    """Three heads as matrices of their own."""
    for h, color in enumerate(HEADS):
        _sheet(ax, x + h * (STRIPE + 0.05), y, tokens, STRIPE - 0.04, color, f"{h}")


if __name__ == "__main__":
    draw()
