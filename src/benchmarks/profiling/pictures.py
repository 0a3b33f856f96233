"""A profile as pictures, in the benches' style: the step along the time, and the roofline of the machine."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from benchmarks.picture import COLOURS, INK, MUTED, PAPER, SETTINGS, WIDTH
from benchmarks.profiling.machine_limits import MachineLimits
from benchmarks.profiling.measuring import Profiled
from benchmarks.profiling.spans import ATTENTION, HOST, KINDS, Piece, closed_up, seconds_of
from benchmarks.profiling.verdicts import Verdict
from coursekit.errors import CourseError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOUR = dict(zip(KINDS, (*COLOURS, "#8a4fa3", "#9aa1a8"), strict=True))
MARKERS = {"decode": "o", "prefill": "s"}
LANES_HEIGHT = 1.75
NARROW, LETTER = 0.045, 0.0125
"""A piece gets its name if it takes this share of the picture's width, and this for each letter."""


def _picture(height: float, draw: Callable[[Any], None], caption: str) -> bytes:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise CourseError("the picture needs matplotlib: `pdm install` brings it") from None
    with mpl.rc_context(SETTINGS):
        fig = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(fig)
        fig.supxlabel(caption, fontsize=7.5, color=MUTED)
        buffer = io.BytesIO()
        fig.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def draw_timeline(profiles: Sequence[Profiled], caption: str) -> bytes:
    """For each profile the whole step, a row for each kind, and below it one of its layers with names, as SVG.

    Raises:
        CourseError: matplotlib is not installed.
    """

    def draw(fig: Any) -> None:
        axes = fig.subplots(2 * len(profiles), 1, squeeze=False)[:, 0]
        for place, profiled in enumerate(profiles):
            pieces = closed_up(profiled.shown.pieces)
            _draw_step(axes[2 * place], profiled.title, pieces)
            _draw_layer(axes[2 * place + 1], pieces, profiled.sizes.layers)

    return _picture(2 * LANES_HEIGHT * len(profiles) + 0.3, draw, caption)


def _draw_lanes(ax: Axes, pieces: Sequence[Piece], unit: float) -> None:
    for lane, kind in enumerate(KINDS):
        bars = [(each.start * unit, each.seconds * unit) for each in pieces if each.kind == kind]
        ax.broken_barh(bars, (lane - 0.38, 0.76), facecolors=COLOUR[kind], linewidth=0)
    ax.set_ylim(len(KINDS) - 0.5, -0.5)
    ax.set_xlim(pieces[0].start * unit, pieces[-1].end * unit)
    ax.tick_params(length=0, labelsize=8)
    ax.tick_params(axis="x", colors=MUTED)


def _draw_step(ax: Axes, title: str, pieces: Sequence[Piece]) -> None:
    whole = seconds_of(pieces)
    _draw_lanes(ax, pieces, 1e3)
    shares = [(kind, seconds_of(pieces, kind)) for kind in KINDS]
    ax.set_yticks(
        range(len(KINDS)),
        [f"{kind}  {1e3 * each:.2f} ms  {100 * each / whole:.0f} %" for kind, each in shares],
    )
    ax.set_title(f"{title[0].upper()}{title[1:]}: {1e3 * whole:.2f} ms")


def _draw_layer(ax: Axes, pieces: Sequence[Piece], layers: int) -> None:
    """From one layer's attention to the next one's."""
    start, end = a_layer(pieces)
    some = [replace(each, start=each.start - start, end=each.end - start) for each in pieces]
    some = [each for each in some if each.start >= 0 and each.end <= end - start + 1e-9]
    _draw_lanes(ax, some, 1e6)
    ax.set_yticks(range(len(KINDS)), KINDS)
    ax.set_title(
        f"One layer of {layers}, from its attention to the next one's (µs)", color=MUTED, fontsize=8.5
    )
    for each in some:
        name = each.name.rpartition(".")[2].rpartition("::")[2]
        if each.kind != HOST and each.seconds > max(NARROW, LETTER * len(name)) * (end - start):
            x, y = 1e6 * (each.start + each.end) / 2, KINDS.index(each.kind)
            ax.text(x, y, name, ha="center", va="center", size=7.5, color=PAPER, clip_on=True)


def a_layer(pieces: Sequence[Piece]) -> tuple[float, float]:
    """Where one layer's attention begins, and the next one's: of all layers, that with the median time.

    With fewer than two layers it is the whole step.
    """
    known = [each for each in pieces if each.kind != HOST]
    begins = [each.start for before, each in pairwise(known) if each.kind == ATTENTION != before.kind]
    lengths = sorted((after - start, start) for start, after in pairwise(begins))
    if not lengths:
        return pieces[0].start, pieces[-1].end
    length, start = lengths[(len(lengths) - 1) // 2]
    return start, start + length


def draw_roofline(found: dict[str, list[Verdict]], limits: MachineLimits, caption: str) -> bytes:
    """What memory and arithmetic give, and a point for each kind of operation of each profile, as SVG.

    Args:
        found: by the name of the profile.

    Raises:
        CourseError: matplotlib is not installed.
    """
    points = [each for verdicts in found.values() for each in verdicts]

    def draw(fig: Any) -> None:
        ax = fig.subplots()
        top = max(limits.arithmetic.values())
        right = 10 * max([top / limits.bandwidth, *(each.intensity for each in points)])
        left = min([0.1, *(each.intensity / 2 for each in points)])
        _draw_roofs(ax, limits, left, right)
        for name, verdicts in found.items():
            _draw_points(ax, verdicts, MARKERS.get(name, "o"), name if len(found) > 1 else "")
        ax.set_xlim(left, right)
        ax.set_ylim(min([1e9, *(each.rate / 2 for each in points)]) / 1e9, 2 * top / 1e9)
        ax.set_title("What the machine gives, and what the operations achieve")
        ax.set_xlabel("operations per byte", color=MUTED)
        ax.set_ylabel("10⁹ operations per second", color=MUTED)

    return _picture(4.4, draw, caption)


def _draw_roofs(ax: Axes, limits: MachineLimits, left: float, right: float) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.grid(True, which="major", color=MUTED, alpha=0.18, linewidth=0.6)
    ax.tick_params(which="both", length=0, labelsize=8, colors=MUTED)
    slope, top = limits.bandwidth / 1e9, max(limits.arithmetic.values()) / 1e9
    ax.plot([left, top / slope], [left * slope, top], color=INK, linewidth=1.4)
    at = left**0.45 * (top / slope) ** 0.55
    along: Any = {"rotation": math.degrees(math.atan(slope)), "transform_rotates_text": True}
    label = f"memory, {slope:.0f} GB/s"
    ax.text(at, 1.15 * at * slope, label, rotation_mode="anchor", ha="center", va="bottom", size=8, **along)
    for name, rate in limits.arithmetic.items():
        ax.plot([rate / limits.bandwidth, right], [rate / 1e9] * 2, color=INK, linewidth=1.1)
        ax.text(right, rate / 1e9, f"  {name}, {rate / 1e9:,.0f}", va="center", size=8)


def _draw_points(ax: Axes, verdicts: Sequence[Verdict], marker: str, note: str) -> None:
    for each in verdicts:
        x, y = each.intensity, each.rate / 1e9
        ax.plot([x], [y], marker=marker, color=COLOUR[each.kind], markersize=8, linestyle="none")
        text = f"{each.kind}{f', {note}' if note else ''}: {100 * each.share:.0f} %"
        ax.annotate(text, (x, y), (7, -3), textcoords="offset points", size=8, color=COLOUR[each.kind])
