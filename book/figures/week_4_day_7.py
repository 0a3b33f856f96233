"""Where a record has each weight of a block, and a step before and after the day."""

from __future__ import annotations

from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, arrow, diagram, label, new_figure, save

from tiny_llm.fast.rows8 import GROUP
from tiny_llm.fast.vectors import LANES
from tiny_llm.fast.weights8 import lay_out, record_bytes

LINE = 64
"""Bytes of a register."""
TONES = ("blue", "green", "orange", "purple")
"""One for each two registers that share their bytes."""


class Source(NamedTuple):
    """Where the code in half a byte comes from."""

    output: int
    input: int

    @property
    def register(self) -> int:
        return self.input // 4


def draw() -> None:
    draw_record()
    draw_step()


def sources() -> np.ndarray:
    """Which weight the halves of a record's bytes hold: [4 lines, 64 bytes, lower and upper, output and input].

    The reference lays out three matrices, whose codes say where they stand.
    """
    outputs, inputs = np.mgrid[0:LANES, 0:GROUP]
    numbers = torch.zeros(LANES, 1)

    def found(codes: np.ndarray) -> np.ndarray:
        laid = lay_out(torch.from_numpy(codes.astype(np.uint8)), numbers, numbers, bits=4).records
        assert len(laid) == record_bytes(4)
        lines = laid[: 4 * LINE].reshape(4, LINE)
        return np.stack((lines & 15, lines >> 4), axis=-1).astype(int)

    return np.stack((found(outputs), 4 * found(inputs // 4) + found(inputs % 4)), axis=-1)


def _color(register: int) -> str:
    """Pale for the first of two registers, half as pale for the second."""
    tone = TONES[register // 2]
    if register % 2 == 0:
        return PALE[tone]
    pale, dark = np.array(mpl.colors.to_rgb(PALE[tone])), np.array(mpl.colors.to_rgb(COLORS[tone]))
    return mpl.colors.to_hex((0.55 * pale + 0.45 * dark).tolist())


def draw_record() -> None:
    """A block of a matrix, its record, and one register of it."""
    where = sources()
    fig, ax = diagram(height=3.95)
    _draw_block(ax, 0.72, 3.3)
    _draw_lines(ax, where, 4.05, 3.3)
    _draw_register(ax, [Source(*map(int, where[0, byte, 0])) for byte in range(LINE)], 0.72, 0.72)
    save(fig, "week_4_day_7_record")


def _cell(ax: Axes, x: float, y: float, width: float, height: float, register: int) -> None:
    face = _color(register)
    ax.add_patch(Rectangle((x, y), width, height, facecolor=face, edgecolor=COLORS["paper"], linewidth=0.5))


def _draw_block(ax: Axes, left: float, top: float) -> None:
    width, height = 0.084, 0.084
    label(ax, left, top + 0.42, "16 outputs × 32 inputs of the matrix", align="left", bold=True)
    for output in range(LANES):
        for register in range(GROUP // 4):
            _cell(ax, left + 4 * register * width, top - (output + 1) * height, 4 * width, height, register)
    for register in range(GROUP // 4):
        middle = left + (4 * register + 2) * width
        label(ax, middle, top + 0.11, f"{4 * register}–{4 * register + 3}", size=6.8, color="muted")
    label(ax, left - 0.08, top - height / 2, "output 0", align="right", size=7.5, color="muted")
    label(ax, left - 0.08, top - 15.5 * height, "15", align="right", size=7.5, color="muted")


def _register(places: np.ndarray) -> int:
    """The register of the codes of a lane, which are four neighbors of one output."""
    found = [Source(*map(int, place)) for place in places]
    assert [each.input % 4 for each in found] == [0, 1, 2, 3]
    assert len({(each.output, each.register) for each in found}) == 1
    return found[0].register


def _draw_lines(ax: Axes, where: np.ndarray, left: float, top: float) -> None:
    """The record, line by line of 64 bytes; the codes in two layers: upper halves, lower halves."""
    width, height, gap = 2.4 / LINE, 0.115, 0.055
    label(ax, left, top + 0.42, f"the record: {record_bytes(4)} bytes", align="left", bold=True)
    label(ax, left + 1.2, top + 0.12, "64 bytes", size=7.5, color="muted")
    for side, end in ((left + 0.9, left + 0.02), (left + 1.5, left + 2.38)):
        arrow(ax, (side, top + 0.12), (end, top + 0.12))
    for line in range(4):
        y = top - (line + 1) * (2 * height + gap) + gap
        for lane in range(LANES):
            for half in range(2):
                register = _register(where[line, 4 * lane : 4 * lane + 4, half])
                _cell(ax, left + 4 * lane * width, y + half * height, 4 * width, height, register)
        first, second = (Source(*map(int, where[line, 0, half])).input for half in (0, 1))
        label(ax, left - 0.07, y + height / 2, f"{first}–{first + 3}", align="right", size=6.8, color="muted")
        label(
            ax,
            left - 0.07,
            y + 1.5 * height,
            f"{second}–{second + 3}",
            align="right",
            size=6.8,
            color="muted",
        )
    label(ax, left + 2.47, top - height / 2, "upper halves", align="left", size=7, color="muted")
    label(ax, left + 2.47, top - 1.5 * height, "lower", align="left", size=7, color="muted")
    y = top - 5 * (2 * height + gap) + gap
    for place, name in enumerate(("16 scales", "16 minima")):
        x = left + place * 1.2
        ax.add_patch(
            Rectangle(
                (x, y), 1.2, 2 * height, facecolor=PALE["yellow"], edgecolor=COLORS["line"], linewidth=0.7
            )
        )
        label(ax, x + 0.6, y + height, name, size=8)


def _draw_register(ax: Axes, register: list[Source], left: float, bottom: float) -> None:
    """The lower halves of the first line, moved into a register, and what they are multiplied by."""
    width, height = 0.38, 0.25
    label(ax, left, bottom + 0.72, "its first register, in a kernel", align="left", bold=True)
    for lane in range(LANES):
        mine = register[4 * lane : 4 * lane + 4]
        assert {each.output for each in mine} == {lane}
        x = left + lane * width
        ax.add_patch(
            Rectangle(
                (x, bottom), width, height, facecolor=_color(0), edgecolor=COLORS["blue"], linewidth=0.7
            )
        )
        label(ax, x + width / 2, bottom + height / 2, " ".join(str(each.input) for each in mine), size=6.5)
        label(ax, x + width / 2, bottom + height + 0.12, str(lane), size=7, color="muted")
        ax.add_patch(
            Rectangle(
                (x, bottom - 0.34),
                width,
                height,
                facecolor=PALE["red"],
                edgecolor=COLORS["red"],
                linewidth=0.7,
            )
        )
        label(ax, x + width / 2, bottom - 0.34 + height / 2, "0 1 2 3", size=6.5)
    label(ax, left - 0.08, bottom + height + 0.12, "output", align="right", size=7.5, color="muted")
    label(ax, left - 0.08, bottom + height / 2, "inputs", align="right", size=7.5, color="muted")
    label(ax, left - 0.08, bottom - 0.34 + height / 2, "× row's", align="right", size=7.5, color="red")
    label(
        ax,
        left,
        bottom - 0.53,
        "four products and their sum in each lane: 16 outputs at once, for the row's inputs 0 to 3",
        align="left",
        size=7.5,
        color="muted",
    )


KINDS = ("matrix products", "attention", "small operations", "sampling", "host")
STEPS = {
    "Day 4.6, bfloat16": (139.7, (57.9, 13.6, 13.3, 4.8, 10.4)),
    "today": (41.1, (47.4, 23.6, 12.0, 9.2, 7.8)),
}
"""Measured by `pdm run profile`: milliseconds of a step without recording, and the shares of the recorded one."""
HUES = ("blue", "green", "orange", "purple", "muted")


def draw_step() -> None:
    """A step of 32 requests before and after the day, by what it is spent on."""
    fig, ax = new_figure(height=1.75)
    for place, (whole, shares) in enumerate(STEPS.values()):
        left = 0.0
        for share, hue, kind in zip(shares, HUES, KINDS, strict=True):
            width = whole * share / 100
            ax.barh(
                place, width, left=left, height=0.6, color=COLORS[hue], label=kind if place == 0 else None
            )
            if width > 5:
                ax.text(left + width / 2, place, f"{width:.0f}", ha="center", va="center", color="#ffffff")
            left += width
        ax.text(left + 1.5, place, f"{whole:.0f} ms", va="center", weight="bold")
    ax.set_yticks(range(len(STEPS)), list(STEPS))
    ax.tick_params(axis="y", length=0, labelcolor=COLORS["ink"])
    ax.set(xlim=(0, 158), xlabel="milliseconds per step of 32 requests")
    ax.invert_yaxis()
    fig.legend(*ax.get_legend_handles_labels(), ncols=5, loc="outside upper left", handlelength=1.0)
    save(fig, "week_4_day_7_step")


if __name__ == "__main__":
    draw()
