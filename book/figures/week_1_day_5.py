"""One block with the shapes between its steps, and where the default model's weights are."""

from matplotlib.axes import Axes
from matplotlib.patches import Circle
from style import COLORS, PALE, arrow, box, diagram, label, new_figure, save

from tiny_llm.weights import load_weights

ATTENTION = (
    ("attention_norm", "[B, L, E]", "blue"),
    ("qkv", "[B, L, (H + 2·Hkv)·D]", "blue"),
    ("cut into heads", "query [B, L, H, D]; key, value [B, L, Hkv, D]", "blue"),
    ("rotate query, key", "the same shapes, then axes 1 and 2 swapped", "blue"),
    ("cache.attend", "[B, H, L, D]", "red"),
    ("merge heads", "[B, L, H·D]", "blue"),
    ("out", "[B, L, E]", "blue"),
)
MLP = (
    ("mlp_norm", "[B, L, E]", "green"),
    ("gate_up", "[B, L, 2·F]", "green"),
    ("silu(gate) · up", "[B, L, F]", "green"),
    ("down", "[B, L, E]", "green"),
)
STEP = 0.46
TALL = 0.28
TOP = 3.64
ENTRY = 3.98
PROMPT = 37


def draw() -> None:
    _draw_block()
    _draw_parameters()


def _draw_block() -> None:
    fig, ax = diagram(height=4.2)
    _branch(ax, 0.3, ATTENTION, "x, from the block before")
    _branch(ax, 4.85, MLP, "x, with attention added")
    bottom = _bottom(ATTENTION)
    path = ([0.3, 0.3, 4.5, 4.5], [bottom - 0.13, bottom - 0.3, bottom - 0.3, ENTRY])
    ax.plot(*path, color=COLORS["ink"], linewidth=2.6)
    arrow(ax, (4.5, ENTRY), (4.72, ENTRY), color="ink")
    arrow(ax, (4.85, _bottom(MLP) - 0.13), (4.85, _bottom(MLP) - 0.5), color="ink")
    label(ax, 5.0, _bottom(MLP) - 0.46, "to the next block", align="left", color="muted", size=8.5)
    save(fig, "week_1_day_5_block")


def _bottom(steps: tuple[tuple[str, str, str], ...]) -> float:
    """Where the branch joins the stream again."""
    return TOP - len(steps) * STEP - 0.02


def _branch(ax: Axes, x: float, steps: tuple[tuple[str, str, str], ...], entry: str) -> None:
    """The stream at `x`, and to its right the steps that work on a copy of it."""
    bottom = _bottom(steps)
    label(ax, x, ENTRY, entry, align="left", bold=True, size=8.5)
    ax.plot([x, x], [ENTRY - 0.13, bottom + 0.13], color=COLORS["ink"], linewidth=2.6, solid_capstyle="butt")
    arrow(ax, (x, TOP - 0.02), (x + 0.3, TOP - 0.02))
    for index, (name, shape, color) in enumerate(steps):
        y = TOP - index * STEP - TALL / 2
        box(ax, x + 0.3, y, 1.3, TALL, name, color=color, size=8.5, bold=color == "red")
        label(ax, x + 1.04, y - (STEP - TALL) / 2, shape, align="left", size=8, color="muted")
        if index:
            arrow(ax, (x + 0.95, y + STEP), (x + 0.95, y + TALL))
    ax.plot(
        [x + 0.95, x + 0.95], [bottom + STEP - TALL / 2 + 0.02, bottom], color=COLORS["muted"], linewidth=1.2
    )
    arrow(ax, (x + 0.95, bottom), (x + 0.14, bottom))
    plus = Circle((x, bottom), 0.13, facecolor=PALE["yellow"], edgecolor=COLORS["yellow"], linewidth=1.1)
    ax.add_patch(plus)
    label(ax, x, bottom, "+", bold=True, size=11)


def _draw_parameters() -> None:
    """Multiplications for a prompt: each row that goes through a matrix costs as many as the matrix has numbers."""
    weights = load_weights()
    sizes = {name: weights.tensor(name).numel() for name in weights.tensors}
    parts = {
        "MLP": ("green", sum(n for name, n in sizes.items() if "gate_up" in name or "down" in name)),
        "attention": (
            "blue",
            sum(n for name, n in sizes.items() if "qkv" in name or "attention_out" in name),
        ),
        "head": ("orange", sizes["embedding.weight"]),
    }
    whole = sum(size for _, size in parts.values())
    fig, ax = new_figure(height=1.75)
    for row, head_rows in ((1, PROMPT), (0, 1)):
        left = 0.0
        for name, (color, size) in parts.items():
            rows = head_rows if name == "head" else PROMPT
            share = 100 * size * rows / (whole * PROMPT)
            ax.barh(row, share, left=left, height=0.6, facecolor=PALE[color], edgecolor=COLORS[color])
            text = f"{name} {share:.0f} %" if share > 5 else f"{name} {share:.1f} %"
            inside = share > 5
            ax.text(
                left + share / 2 if inside else left + share + 1,
                row,
                text,
                ha="center" if inside else "left",
                va="center",
            )
            left += share
    ax.set_yticks([1, 0], ["on every row", "on the last row"])
    ax.set(xlim=(0, 102), xlabel=f"multiplications for a prompt of {PROMPT} tokens, %", ylabel="the head")
    ax.tick_params(axis="y", length=0)
    save(fig, "week_1_day_5_head")


if __name__ == "__main__":
    draw()
