"""Codes with inputs or with outputs side by side, and the bytes that a weight takes in each form."""

from __future__ import annotations

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, MONOSPACE, PALE, arrow, box, diagram, label, new_figure, save

from tiny_llm.kernels.quantized_matmul_cpu import pack_outputs
from tiny_llm.kernels.quantized_matmul_torch import TorchInt4Matmul
from tiny_llm.quantize import quantize, unpack_nibbles

SIZE = 8
LANES = 4
CELL = 0.27
TOP = 2.75


def draw() -> None:
    draw_layouts()
    draw_bytes()


def draw_layouts() -> None:
    """The same small matrix twice, with the register that one instruction works on."""
    torch.manual_seed(3)
    codes = unpack_nibbles(quantize(torch.randn(SIZE, SIZE), group_size=SIZE).nibbles).reshape(SIZE, SIZE)
    fig, ax = diagram(height=3.75)
    _draw_inputs_side_by_side(ax, codes.tolist(), 0.75)
    _draw_outputs_side_by_side(ax, codes.T.tolist(), 4.5)
    save(fig, "week_2_day_3_layout")


def _draw_inputs_side_by_side(ax: Axes, codes: list[list[int]], left: float) -> None:
    label(ax, left - 0.6, 3.55, "inputs side by side", align="left", bold=True)
    _draw_codes(ax, codes, left)
    label(ax, left + 6 * CELL, TOP + 0.17, "inputs →", size=8.5, color="muted")
    label(ax, left - 0.12, TOP - CELL / 2, "output 0", align="right", size=8.5, color="blue")
    label(ax, left - 0.12, TOP - 1.5 * CELL, "output 1", align="right", size=8.5, color="muted")
    for lane in range(LANES):
        label(ax, left + (lane + 0.5) * CELL, 3.21, f"x{_below(lane)}", size=9, color="orange")
        arrow(
            ax, (left + (lane + 0.5) * CELL, 3.11), (left + (lane + 0.5) * CELL, TOP + 0.02), color="orange"
        )
    right = left + SIZE * CELL
    arrow(ax, (right + 0.04, TOP - CELL / 2), (right + 0.3, TOP - CELL / 2))
    box(ax, right + 0.32, TOP - 0.29, 0.46, 0.3, "Σ", color="red", size=11)
    label(ax, right + 0.55, TOP - 0.52, "across the\nregister", size=8.5, color="red")


def _draw_outputs_side_by_side(ax: Axes, codes: list[list[int]], left: float) -> None:
    label(ax, left - 0.6, 3.55, "outputs side by side", align="left", bold=True)
    _draw_codes(ax, codes, left, columns="green")
    label(ax, left + 6 * CELL, TOP + 0.17, "outputs →", size=8.5, color="muted")
    label(ax, left - 0.38, TOP - CELL / 2, f"x{_below(0)}", size=9, color="orange")
    arrow(ax, (left - 0.28, TOP - CELL / 2), (left - 0.02, TOP - CELL / 2), color="orange")
    label(ax, left - 0.12, TOP - 1.5 * CELL, "input 1", align="right", size=8.5, color="muted")
    bottom = TOP - SIZE * CELL
    for lane in range(LANES):
        x = left + (lane + 0.5) * CELL
        arrow(ax, (x, bottom - 0.02), (x, bottom - 0.24), color="green")
        label(ax, x, bottom - 0.33, f"y{_below(lane)}", size=9, color="green")
    label(ax, left + 4.4 * CELL, bottom - 0.3, "a sum in every lane", align="left", size=8.5, color="green")


def _draw_codes(ax: Axes, codes: list[list[int]], left: float, columns: str = "muted") -> None:
    """A grid of codes whose first LANES cells are one register; `columns` tints the cells below it."""
    for row, line in enumerate(codes):
        for column, code in enumerate(line):
            in_register = row == 0 and column < LANES
            corner = (left + column * CELL, TOP - (row + 1) * CELL)
            ax.add_patch(
                Rectangle(
                    corner,
                    CELL,
                    CELL,
                    facecolor=PALE["blue" if in_register else columns if column < LANES else "muted"],
                    edgecolor=COLORS["line"],
                    linewidth=0.8,
                )
            )
            ax.text(
                corner[0] + CELL / 2,
                corner[1] + CELL / 2,
                str(code),
                ha="center",
                va="center",
                size=8,
                family=MONOSPACE,
                color=COLORS["ink" if in_register else "muted"],
            )
    register = Rectangle(
        (left, TOP - CELL), LANES * CELL, CELL, fill=False, edgecolor=COLORS["blue"], linewidth=2
    )
    ax.add_patch(register)


def _below(number: int) -> str:
    return "₀₁₂₃₄₅₆₇"[number]


def draw_bytes() -> None:
    """Bytes per weight of a matrix 576 → 1536, counted on the arrays of each form."""
    weight = torch.zeros(1536, 576)
    stored = quantize(weight)
    packed, torchs = pack_outputs(stored), TorchInt4Matmul(stored)
    forms = {
        "float32": (weight.nbytes, 0),
        "bfloat16": (weight.bfloat16().nbytes, 0),
        "Day 2.2's form": (stored.nibbles.nbytes, stored.scales.nbytes + stored.minima.nbytes),
        "the kernel's form": (packed.nibbles.nbytes, packed.scales.nbytes + packed.minima.nbytes),
        "torch's form": (torchs.codes.nbytes, torchs.scales_and_zeros.nbytes),
    }
    fig, ax = new_figure(height=2.1)
    for place, (numbers, rest) in enumerate(forms.values()):
        first, second = numbers / weight.numel(), rest / weight.numel()
        ax.barh(place, first, color=COLORS["blue" if rest else "muted"], height=0.62)
        ax.barh(
            place, second, left=first, color=COLORS["orange"], height=0.62, hatch="///", edgecolor="white"
        )
        ax.text(first + second + 0.05, place, f"{first + second:g}", va="center", size=9)
    ax.set_yticks(range(len(forms)), list(forms))
    ax.tick_params(axis="y", length=0, labelcolor=COLORS["ink"])
    ax.set(xlim=(0, 4.4), xlabel="bytes per weight")
    ax.invert_yaxis()
    save(fig, "week_2_day_3_bytes")


if __name__ == "__main__":
    draw()
