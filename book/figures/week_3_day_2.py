"""Week 3 Day 2: a walk of the block table, and the same step as a mask over the pool, drawn from the metadata."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, arrow, diagram, label, save

from tiny_llm.paged.allocator import NULL_PAGE, PageAllocator
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.paged.tables import tables_of

P, N = 4, 8
NAMES = "ABC"
SERIES = ("blue", "orange", "green")
WALKER = 1  # B, whose table is walked


def draw() -> None:
    meta = example()
    _walk(meta)
    _mask(meta)


def example() -> ForwardMeta:
    """The chapter's step: A decodes with a past of 8, B brings 2 tokens after 3, C a prompt of 3."""
    allocator = PageAllocator(N)
    sequences = [PagedSequence(allocator, P) for _ in NAMES]
    for n, past in ((0, 6), (1, 3), (0, 2)):
        sequences[n].reserve(past)
        sequences[n].advance(past)
    new = (1, 2, 3)
    for sequence, count in zip(sequences, new, strict=True):
        sequence.reserve(count)
    return ForwardMeta.build(tables_of(sequences), [sequence.length for sequence in sequences], new, P)


def places_of(meta: ForwardMeta, b: int) -> list[int]:
    """Where the tokens of sequence b lie, as the metadata say."""
    table = meta.block_table[b].tolist()
    return [table[p // P] * P + p % P for p in range(meta.kv_lens[b])]


def _walk(meta: ForwardMeta) -> None:
    """The step's tokens above, the table on the left, the pool on the right."""
    fig, ax = diagram(height=4.3)
    _tokens(ax, meta)
    tops = _pool(ax, meta)
    _table(ax, meta, tops)
    save(fig, "week_3_day_2")


def _tokens(ax: Axes, meta: ForwardMeta) -> None:
    """The row that the model runs on, and what is said about each token."""
    left, y, width = 1.25, 3.55, 0.5
    rows = {
        "token": [f"{NAMES[b]}{p}" for b in range(3) for p in range(meta.kv_lens[b])[_first(meta, b) :]],
        "positions": meta.positions.tolist(),
        "slot_mapping": meta.slot_mapping.tolist(),
    }
    label(ax, 0.1, y + 0.52, "cu_seqlens_q", align="left", mono=True, size=8)
    for start in meta.starts:
        label(ax, left + start * width, y + 0.52, str(start), size=8.5, bold=True)
        ax.plot([left + start * width] * 2, [y + 0.3, y + 0.42], color=COLORS["muted"], linewidth=1)
    for line, (name, numbers) in enumerate(rows.items()):
        label(ax, 0.1, y + 0.14 - 0.28 * line, name, align="left", mono=line > 0, size=8)
        for t, number in enumerate(numbers):
            b = _owner(meta, t)
            x = left + t * width
            if line == 0:
                bold = t in meta.last_rows.tolist()
                _cell(ax, x, y, width, 0.28, SERIES[b], str(number), bold=bold, heavy=bold)
            else:
                label(ax, x + width / 2, y + 0.14 - 0.28 * line, str(number), size=8.5)
    x = left + 6 * width + 0.2
    label(ax, x, y + 0.14, "heavy: last rows, which", align="left", size=8)
    label(ax, x, y - 0.06, "may go through the head", align="left", size=8)


def _table(ax: Axes, meta: ForwardMeta, tops: list[float]) -> None:
    """The block table and the lengths; arrows lead from one row to the pages."""
    left, top, size = 2.35, 2.2, 0.42
    label(ax, left, top + 0.62, "block_table", align="left", mono=True, size=8)
    label(ax, 1.1, top + 0.62, "seq_lens_kv", align="left", mono=True, size=8)
    for b, row in enumerate(meta.block_table.tolist()):
        y = top - b * (size + 0.14)
        label(ax, 0.1, y + size / 2, f"sequence {NAMES[b]}", align="left", bold=b == WALKER)
        for entry, page in enumerate(row):
            unused = page == NULL_PAGE
            _cell(ax, left + entry * size, y, size, size, "muted" if unused else SERIES[b], str(page))
        kv, new = meta.kv_lens[b], meta.starts[b + 1] - meta.starts[b]
        label(ax, 1.25, y + size / 2, f"{kv} = {kv - new} + {new}", align="left", size=8.5)
    y = top - WALKER * (size + 0.14)
    held = [page for page in meta.block_table[WALKER].tolist() if page != NULL_PAGE]
    for entry, page in enumerate(held):
        x = left + entry * size + size / 2
        side = y + size if entry == 0 else y
        bend = -0.14 if entry == 0 else -0.24
        arrow(ax, (x, side), (4.25, tops[page] + 0.13), color=SERIES[WALKER], bend=bend)
    label(ax, 0.1, 0.66, "B's tokens 0 … 4: page 3 whole,", align="left", size=8.5)
    label(ax, 0.1, 0.44, "then 5 − 4 = 1 place of page 5.", align="left", size=8.5)
    label(ax, 0.1, 0.22, "The 0 at its end is filling, never read.", align="left", size=8.5)


def _pool(ax: Axes, meta: ForwardMeta) -> list[float]:
    """The pages, one below the other; the bottom of each."""
    left, top, width, height = 4.8, 2.75, 0.5, 0.28
    owners = {place: (b, p) for b in range(3) for p, place in enumerate(places_of(meta, b))}
    fresh = set(meta.slot_mapping.tolist())
    tops = []
    for page in range(N):
        y = top - page * (height + 0.07)
        tops.append(y)
        label(ax, left - 0.08, y + height / 2, f"page {page}", align="right", size=8, color="muted")
        for offset in range(P):
            place = page * P + offset
            x = left + offset * width
            if place in owners:
                b, p = owners[place]
                _cell(ax, x, y, width, height, SERIES[b], f"{NAMES[b]}{p}", heavy=place in fresh)
            else:
                _cell(ax, x, y, width, height, "muted" if page == NULL_PAGE else "", "")
    label(ax, left, 0.08, "heavy: written in this step", align="left", size=8)
    return tops


def _mask(meta: ForwardMeta) -> None:
    """T queries over all places of the pool: a cell is filled where the query reads the place."""
    fig, ax = diagram(height=1.95)
    left, top, cell, gap = 0.75, 1.35, 0.188, 0.035
    rows = int(meta.starts[-1])
    seen = np.zeros((rows, N * P), dtype=bool)
    for b in range(3):
        places, new = places_of(meta, b), meta.starts[b + 1] - meta.starts[b]
        for i in range(new):
            seen[meta.starts[b] + i, places[: meta.kv_lens[b] - new + i + 1]] = True
    for page in range(N):
        x = left + page * (P * cell + gap)
        words = "null" if page == NULL_PAGE else f"page {page}"
        label(ax, x + P * cell / 2, top + cell + 0.16, words, size=8, color="muted")
    for t in range(rows):
        b, y = _owner(meta, t), top - t * cell
        label(
            ax,
            left - 0.12,
            y + cell / 2,
            f"{NAMES[b]}, {int(meta.positions[t])}",
            align="right",
            size=8.5,
        )
        for place in range(N * P):
            x = left + place * cell + place // P * gap
            own = place == int(meta.slot_mapping[t])
            _cell(ax, x, y, cell, cell, SERIES[b] if seen[t, place] else "", "•" if own else "")
    label(
        ax,
        left,
        0.17,
        "rows: a query each, with sequence and position; • its own place",
        align="left",
        size=8.5,
    )
    save(fig, "week_3_day_2_mask")


def _first(meta: ForwardMeta, b: int) -> int:
    return meta.kv_lens[b] - (meta.starts[b + 1] - meta.starts[b])


def _owner(meta: ForwardMeta, t: int) -> int:
    """The sequence that token t belongs to."""
    return next(b for b in range(3) if t < meta.starts[b + 1])


def _cell(
    ax: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    color: str,
    text: str,
    bold: bool = False,
    heavy: bool = False,
) -> None:
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=PALE[color] if color else COLORS["paper"],
            edgecolor=COLORS[color or "line"],
            linewidth=2.2 if heavy else 0.9,
            linestyle="-" if color else (0, (2, 2)),
            zorder=0.9 if heavy else 0.8 if color else 0.7,  # arrows are drawn over cells
        )
    )
    if text:
        ax.text(
            x + width / 2,
            y + height / 2,
            text,
            ha="center",
            va="center",
            size=8.5,
            weight="bold" if bold else None,
        )


if __name__ == "__main__":
    draw()
