"""The roofline of two cores with AVX-512 with attention under it, and how a step's work is cut into pieces."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from style import COLORS, arrow, box, diagram, new_figure, save

H, HKV, D = 9, 3, 64  # SmolLM2-135M
ARITHMETIC = 300.0  # GFLOP/s of both cores
MEMORY = 30.0  # GB/s
LOOPS = 50.0  # GFLOP/s that the loops of the decode kernel get to


def intensity(L: int, S: int, size: int = 4, causal: bool = False) -> float:
    """Operations for each byte of query, keys, values and result, each moved once."""
    operations = 4 * D * H * L * S * (0.5 if causal else 1.0)
    return operations / ((2 * H * L + 2 * HKV * S) * D * size)


CASES = (
    ("decode, float32", intensity(1, 4096), "blue", "o", (-8, 6), "right"),
    ("decode, bfloat16", intensity(1, 4096, size=2), "green", "s", (-8, 6), "right"),
    ("8 queries", intensity(8, 4096), "purple", "D", (0, 10), "center"),
    ("prefill, 2,048 tokens", intensity(2048, 2048, causal=True), "orange", "^", (0, 10), "center"),
)


def roof(x: float) -> float:
    """What the machine can do at an intensity, in GFLOP/s."""
    return min(ARITHMETIC, MEMORY * x)


def draw() -> None:
    _roofline()
    _pieces()


def _roofline() -> None:
    fig, ax = new_figure(height=3.4)
    low, ridge, high = 0.2, ARITHMETIC / MEMORY, 1500.0
    _line(ax, (low, ridge, high), "ink", "-")
    ax.plot(
        (LOOPS / MEMORY, high), (LOOPS, LOOPS), color=COLORS["muted"], linestyle=(0, (4, 2)), linewidth=1.2
    )
    ax.plot((ridge, ridge), (4, ARITHMETIC), color=COLORS["line"], linewidth=1.0)
    for name, x, color, marker, offset, side in CASES:
        ax.plot(x, roof(x), marker=marker, color=COLORS[color], markersize=7)
        ax.annotate(
            name,
            (x, roof(x)),
            offset,
            textcoords="offset points",
            ha=side,
            color=COLORS[color],
            weight="bold",
        )
    ax.text(0.42, 9.6, "memory: 30 GB/s", rotation=30, rotation_mode="anchor", color=COLORS["ink"])
    ax.text(22, ARITHMETIC * 0.82, "arithmetic: 300 GFLOP/s", color=COLORS["ink"], va="top")
    ax.text(22, LOOPS * 0.82, "the loops of today's kernel: about 50", color=COLORS["muted"], va="top")
    ax.text(ridge * 1.07, 4.6, f"the ridge: {ridge:.0f}", color=COLORS["muted"])
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(4, 700))
    ax.set(xlabel="operations for each byte moved", ylabel="GFLOP/s")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    save(fig, "week_2_day_5")


def _pieces() -> None:
    """One row of three key heads, cut into pieces for two threads; one tile of a piece in detail."""
    fig, ax = diagram(height=2.75)
    parts, left, width, tall = 2, 0.95, 2.9, 0.42
    for head in range(HKV):
        y = 1.75 - head * 0.62
        ax.text(left - 0.12, y + tall / 2, f"key head {head}", ha="right", va="center", size=8.5)
        for part in range(parts):
            piece = head * parts + part
            thread = piece * 2 // (HKV * parts)  # each thread takes a run of pieces
            x = left + part * width / parts
            text = f"piece {piece}\nthread {thread}"
            box(ax, x, y, width / parts - 0.05, tall, text, color=("blue", "orange")[thread], size=8)
    for part, keys in enumerate(("keys 0 … 2047", "2048 … 4095")):
        ax.text(left + (part + 0.5) * width / parts, 2.3, keys, ha="center", size=8.5)
    x, y, rows = 4.95, 0.5, 8
    for row in range(rows):
        box(ax, x, y + row * 0.19, 0.95, 0.16, color="orange")
    ax.text(x + 0.475, y + rows * 0.19 + 0.08, "64 keys", ha="center", size=8.5)
    ax.text(x + 0.475, y - 0.17, "from memory, once", ha="center", size=8.5, color=COLORS["muted"])
    for query in range(H // HKV):
        here = (x + 1.3, y + 1.15 - query * 0.5)
        box(ax, *here, 0.78, 0.3, f"query {query}", color="purple", size=8)
        arrow(ax, (x + 1.06, y + 0.8), (here[0] - 0.03, here[1] + 0.15))
    ax.plot(
        (x + 1.0, x + 1.06, x + 1.06, x + 1.0),
        (y, y, y + 1.49, y + 1.49),
        color=COLORS["ink"],
        linewidth=1.0,
    )
    ax.text(x + 1.69, y + rows * 0.19 + 0.08, "the group", ha="center", size=8.5)
    arrow(ax, (left + width + 0.02, 1.34), (x - 0.08, 1.34))
    ax.text((left + width + x) / 2 - 0.03, 1.42, "tile by tile", ha="center", size=8.5, color=COLORS["muted"])
    save(fig, "week_2_day_5_pieces")


def _line(ax: Axes, places: Sequence[float], color: str, style: str) -> None:
    ax.plot(places, [roof(x) for x in places], color=COLORS[color], linestyle=style)


if __name__ == "__main__":
    draw()
