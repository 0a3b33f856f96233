"""A group of eight weights in 4 bits; what group sizes cost in error, and what 4 bits save in memory."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, MONOSPACE, PALE, arrow, box, diagram, label, new_figure, save

from tiny_llm.quantize import dequantize, quantize, unpack_nibbles
from tiny_llm.weights import load_weights

EXAMPLE = (-1.0, 2.75, 0.0, 0.1, 0.9, -0.6, 1.13, 2.4)
GROUP_SIZES = (8, 16, 32, 64, 192, 576)
ROWS = 2048


def draw() -> None:
    draw_example()
    draw_costs()


def draw_example() -> None:
    """The chapter's group on its ladder of 16 levels, and the four bytes that it becomes."""
    quantized = quantize(torch.tensor([EXAMPLE]), group_size=8)
    codes = unpack_nibbles(quantized.nibbles).flatten().tolist()
    fig, ax = diagram(height=3.15)
    left, unit = 0.55, 0.41

    def across(level: float) -> float:
        return left + unit * level

    label(ax, across(7.5), 2.95, "weights, and the 16 levels from −1 in steps of 0.25", size=9)
    ax.plot([across(0), across(15)], [2.15, 2.15], color=COLORS["muted"], linewidth=1)
    for level in range(16):
        used = level in codes
        ax.plot([across(level)] * 2, [2.09, 2.21], color=COLORS["ink" if used else "line"], linewidth=1.4)
        label(ax, across(level), 1.93, str(level), size=8.5, color="ink" if used else "muted", bold=used)
    for place, (weight, code) in enumerate(zip(EXAMPLE, codes, strict=True)):
        color = "blue" if place < 4 else "orange"
        height = 2.62 if place != 3 else 2.42
        start = (across((weight + 1) / 0.25), height - 0.04)
        ax.plot(*start, marker="o" if place < 4 else "s", color=COLORS[color], markersize=5)
        arrow(ax, start, (across(code), 2.22), color=color)
        offset = {2: -0.1, 3: 0.2}.get(place, 0.0)
        label(ax, start[0] + offset, height + 0.11, f"{weight:g}".replace("-", "−"), size=8, color=color)
    _draw_bytes(ax, quantized.nibbles.flatten().tolist(), codes)
    save(fig, "week_2_day_2")


def _draw_bytes(ax: Axes, stored: list[int], codes: list[int]) -> None:
    half = len(codes) // 2
    for place, code in enumerate(codes):
        x = 0.45 + 0.4 * place
        box(ax, x, 1.12, 0.34, 0.3, str(code), color="blue" if place < half else "orange", size=9, mono=True)
    label(ax, 0.45 + 0.4 * half - 0.03, 1.58, "the eight codes: first half, second half", size=8.5)
    for j, byte in enumerate(stored):
        x = 0.45 + 0.8 * j
        for side, color in enumerate(("orange", "blue")):
            ax.add_patch(
                Rectangle((x + 0.34 * side, 0.42), 0.34, 0.3, facecolor=PALE[color], edgecolor=COLORS[color])
            )
            digit = f"{byte:02X}"[side]
            ax.text(x + 0.34 * side + 0.17, 0.57, digit, ha="center", va="center", size=9, family=MONOSPACE)
        arrow(ax, (0.62 + 0.4 * j, 1.1), (x + 0.51, 0.74), color="blue")
        arrow(ax, (0.62 + 0.4 * (half + j), 1.1), (x + 0.17, 0.74), color="orange")
        label(ax, x + 0.34, 0.28, f"byte {j}", size=8, color="muted")
    label(ax, 4.1, 0.57, "high nibble | low nibble, in hexadecimal", size=8.5, align="left", color="muted")
    box(ax, 4.1, 1.06, 1.25, 0.42, "scale 0.25\nfloat16", color="green", size=8.5)
    box(ax, 5.5, 1.06, 1.25, 0.42, "minimum −1\nfloat16", color="green", size=8.5)


def draw_costs() -> None:
    """Error against bits per weight on the left, the model's memory on the right."""
    weights = load_weights(bits=4, matmul="plain")
    fig, (left, right) = new_figure(height=2.9, cols=2, width_ratios=(1.15, 1))
    rows = weights.tensor("embedding.weight")[:ROWS]
    _draw_errors(left, rows)
    blocks = sum(
        t.shape[0] * t.shape[1]
        for name, t in weights.tensors.items()
        if name.startswith("blocks.") and len(t.shape) == 2
    )
    embedding = weights.tensor("embedding.weight").numel()
    _draw_memory(right, blocks, embedding, weights.nbytes)
    save(fig, "week_2_day_2_costs")


def _draw_errors(ax: Axes, rows: torch.Tensor) -> None:
    bits, errors = [], []
    for size in GROUP_SIZES:
        quantized = quantize(rows, size)
        bits.append(8 * quantized.nbytes / rows.numel())
        errors.append(float((dequantize(quantized) - rows).norm() / rows.norm()) * 100)
    ax.plot(bits, errors, color=COLORS["blue"], marker="o")
    for size, x, y in zip(GROUP_SIZES, bits, errors, strict=True):
        ax.annotate(f"G = {size}", (x, y), (7, 3), textcoords="offset points", size=8.5)
    ax.set(xlabel="bits per weight, scale and minimum included", ylabel="error, % of the weights' size")
    ax.set(xlim=(3.8, 8.9), ylim=(0, max(errors) * 1.15))


def _draw_memory(ax: Axes, blocks: int, embedding: int, in_4_bits: int) -> None:
    bars = {"float32": (4 * blocks, 4 * embedding), "4 bits": (in_4_bits - 4 * embedding, 4 * embedding)}
    for place, (inner, outer) in zip((0.0, 1.35), bars.values(), strict=True):
        ax.bar(place, inner / 1e6, 0.55, color=PALE["blue"], edgecolor=COLORS["blue"])
        ax.bar(
            place,
            outer / 1e6,
            0.55,
            bottom=inner / 1e6,
            color=PALE["orange"],
            edgecolor=COLORS["orange"],
            hatch="///",
        )
        ax.text(place + 0.32, inner / 2e6, f"blocks {inner / 1e6:.0f}", va="center", size=8.5)
        ax.text(
            place + 0.32, (inner + outer / 2) / 1e6, f"embedding {outer / 1e6:.0f}", va="center", size=8.5
        )
        ax.text(place, (inner + outer) / 1e6 + 8, f"{(inner + outer) / 1e6:.0f}", ha="center", size=9)
    ax.set(xlim=(-0.4, 2.4), ylim=(0, 600), ylabel="MB")
    ax.set_xticks((0.0, 1.35), list(bars))
    ax.tick_params(axis="x", length=0)


if __name__ == "__main__":
    draw()
