"""The grid of programs over the chapter's ragged batch, and where the rows of a tile come from."""

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, arrow, diagram, label, save

from tiny_llm.paged.places import pages_for, places_of

STARTS, HKV, GROUP, ROWS = [0, 1, 3, 6], 3, 3, 16
WORDS = ("a decode", "a chunk", "a prompt")
SERIES = ("blue", "orange", "green")
P, TABLE, KV_LEN, START, TILE = 4, [1, 2, 4], 9, 4, 8
CELL = 0.3


def draw() -> None:
    _grid()
    _tile()


def _grid() -> None:
    """A strip of ROWS rows for each program: the token of each row, or no token."""
    fig, ax = diagram(height=2.5)
    left, size, gap = 1.4, 0.112, 0.1
    for head in range(HKV):
        x = left + head * (ROWS * size + gap)
        label(ax, x + ROWS * size / 2, 2.3, f"key head {head}", size=8.5)
        for sequence, first in enumerate(STARTS[:-1]):
            y, last = 1.72 - sequence * 0.72, STARTS[sequence + 1]
            label(
                ax, x + ROWS * size / 2, y - 0.13, f"program ({sequence}, {head}, 0)", size=8, color="muted"
            )
            for i in range(ROWS):
                mine = i < (last - first) * GROUP
                text = str(first + i // GROUP) if mine and i % GROUP == 1 else ""
                _cell(ax, x + i * size, y, size, 0.34, SERIES[sequence] if mine else "", text)
            for token in range(1, last - first):
                edge = x + token * GROUP * size
                ax.plot((edge, edge), (y, y + 0.34), color=COLORS["ink"], linewidth=1.2)
    for sequence, words in enumerate(WORDS):
        y = 1.72 - sequence * 0.72
        label(ax, 0.12, y + 0.25, f"sequence {sequence}", align="left", bold=True, size=8.5)
        tokens = range(STARTS[sequence], STARTS[sequence + 1])
        which = "token" if len(tokens) == 1 else "tokens"
        label(ax, 0.12, y + 0.05, f"{words}, {which} {_run(tokens)}", align="left", size=8)
    save(fig, "week_3_day_4")


def _run(tokens: range) -> str:
    return str(tokens[0]) if len(tokens) == 1 else f"{tokens[0]}–{tokens[-1]}"


def _cell(ax: Axes, x: float, y: float, width: float, height: float, color: str, text: str) -> None:
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=PALE[color] if color else COLORS["paper"],
            edgecolor=COLORS[color or "line"],
            linewidth=0.7,
            hatch="" if color else "////",
        )
    )
    if text:
        label(ax, x + width / 2, y + height / 2, text, size=8)


def _tile() -> None:
    """Table, pages and tile, from left to right; an arrow for each row that is read."""
    fig, ax = diagram(height=3.4)
    top, page_left, tile_left = 2.92, 2.75, 5.2
    places = places_of(TABLE, 0, KV_LEN, P)
    positions = range(START, START + TILE)
    label(ax, 0.95, 3.24, "table", size=8.5)
    label(ax, page_left + 0.45, 3.24, "pages, P = 4", size=8.5)
    label(ax, tile_left + 0.55, 3.24, "tile", size=8.5)
    heights = {}  # of each place on the page
    for entry, page in enumerate(TABLE):
        y = top - entry * 0.95 - 0.1
        touched = any(p // P == entry for p in positions if p < KV_LEN)
        _cell(ax, 0.75, y - 0.35, 0.4, 0.3, "purple" if touched else "muted", str(page))
        label(ax, 0.62, y - 0.2, f"[{entry}]", align="right", size=8, color="muted")
        arrow(ax, (1.2, y - 0.2), (page_left - 0.62, y - 0.2), color="purple" if touched else "line")
        label(ax, page_left - 0.08, y - 0.2, f"page {page}", align="right", size=8)
        for offset in range(P):
            spot = y + 0.04 - offset * 0.2
            held = entry * P + offset < KV_LEN
            color = "blue" if held else ""
            _cell(ax, page_left, spot - 0.08, 0.9, 0.18, color, f"token {entry * P + offset}" if held else "")
            heights[page * P + offset] = spot
    for row, position in enumerate(positions):
        y, wanted = top - row * 0.33, position < KV_LEN
        _cell(
            ax,
            tile_left,
            y - 0.14,
            1.1,
            0.28,
            "blue" if wanted else "",
            f"token {position}" if wanted else "",
        )
        if wanted:
            arrow(ax, (page_left + 0.93, heights[places[position]]), (tile_left - 0.04, y), color="blue")
        else:
            label(ax, tile_left + 1.2, y, "masked: 0", align="left", size=8, color="muted")
    last = pages_for(KV_LEN, P) - 1
    y = top - last * 0.95 - 0.1 + 0.04 - (P - 1) * 0.2
    label(ax, page_left + 0.45, y - 0.22, "hatched: no token of this sequence", size=8, color="muted")
    save(fig, "week_3_day_4_tile")


if __name__ == "__main__":
    draw()
