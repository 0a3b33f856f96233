"""A cache that grows: its storage after each of a few calls, and what is copied in all; asked of the real code."""

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, new_figure, save

from tiny_llm.kv_cache import FullKvCache

SMALL_CAPACITY = 4
CALLS = (
    ("append 3", 3),
    ("append 1", 1),
    ("append 1", 1),
    ("append 1", 1),
    ("rewind 2", -2),
    ("append 3", 3),
)
TOKENS = 1000


def append(cache: FullKvCache, count: int) -> int:
    """Append `count` tokens; how many old ones were copied to other storage for it."""
    before, held = cache.keys, cache.length
    new = torch.zeros(1, 1, count, 1)
    cache.append(new, new)
    return 0 if before is None or cache.keys is before else held


def draw() -> None:
    fig, (left, right) = new_figure(height=2.9, cols=2, width_ratios=(1.15, 1))
    _storage(left)
    _copies(right)
    save(fig, "week_2_day_1")


def _storage(ax: Axes) -> None:
    """One line a call, one cell a place of the storage after it."""
    cache = FullKvCache()
    cache.first_capacity = SMALL_CAPACITY
    for line, (_, count) in enumerate(CALLS):
        old = cache.length + min(count, 0)
        copied = append(cache, count) if count > 0 else 0
        if count < 0:
            cache.rewind(-count)
        assert cache.keys is not None
        for place in range(cache.keys.shape[2]):
            _cell(ax, place, line, _kind(place, old, cache.length, copied))
    ax.set(xlim=(-0.1, 8.1), ylim=(len(CALLS), -0.05), aspect="equal", xlabel="place in the storage")
    ax.set_xticks([i + 0.5 for i in range(8)], [str(i) for i in range(8)])
    ax.set_yticks([i + 0.5 for i in range(len(CALLS))], [name for name, _ in CALLS])
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    handles = [_patch(0, 0, kind) for kind in ("new", "old", "copied", "unused")]
    ax.legend(
        handles,
        ["new", "stays", "copied", "unused"],
        loc="upper right",
        handlelength=1.2,
        labelspacing=0.2,
        borderaxespad=0,
    )


def _kind(place: int, old: int, length: int, copied: int) -> str:
    if place >= length:
        return "unused"
    if place >= old:
        return "new"
    return "copied" if copied else "old"


def _cell(ax: Axes, place: int, line: int, kind: str) -> None:
    ax.add_patch(_patch(place, line, kind))


def _patch(x: float, y: float, kind: str) -> Rectangle:
    color = {"new": "blue", "old": "green", "copied": "orange", "unused": "line"}[kind]
    return Rectangle(
        (x, y + 0.1),
        1,
        0.8,
        facecolor=COLORS["paper"] if kind == "unused" else PALE[color],
        edgecolor=COLORS[color],
        linewidth=0.9,
        linestyle=(0, (2, 2)) if kind == "unused" else "-",
        hatch={"copied": "////", "new": "..."}.get(kind),
    )


def _copies(ax: Axes) -> None:
    """Tokens copied so far, when the past is concatenated each time and by the real cache."""
    cache, copied = FullKvCache(), [0]
    for _ in range(TOKENS):
        copied.append(copied[-1] + append(cache, 1))
    lengths = range(TOKENS + 1)
    ax.plot(lengths, [n * (n - 1) / 2 for n in lengths], color=COLORS["orange"])
    ax.plot(lengths, copied, color=COLORS["blue"], linestyle=(0, (4, 2)))
    ax.set_yscale("symlog", linthresh=100)
    ax.set(xlabel="tokens appended one by one", ylabel="tokens copied in all", xlim=(0, 1030))
    ax.set_ylim(0, 3e6)
    ax.set_yticks([0, 100, 1000, 10_000, 100_000, 1_000_000])
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.annotate(
        f"concatenated each time: {TOKENS * (TOKENS - 1) // 2:,}",
        (TOKENS, TOKENS * (TOKENS - 1) / 2),
        (0, 7),
        textcoords="offset points",
        ha="right",
    )
    ax.annotate(
        f"storage that doubles: {copied[-1]:,}",
        (TOKENS, copied[-1]),
        (0, 7),
        textcoords="offset points",
        ha="right",
    )


if __name__ == "__main__":
    draw()
