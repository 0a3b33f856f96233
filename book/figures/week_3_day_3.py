"""A tile of 64 keys out of a table's pages, and parts of sequences dealt to two threads: from the real code."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, arrow, diagram, label, save

from tiny_llm.kernels.decode_attention_cpu import TILE
from tiny_llm.kernels.paged_attention_cpu import PART, deal, load_tile

P, HKV = 16, 3
TABLE = (7, 2, 9, 4, 3, 8, 1, 10, 6, 5)  # the pages of a sequence
PAGES = 11
START = 64  # of the tile that is shown
KV_LENS = (3000, 300, 1024, 500)
THREADS = 2
HEADS = ("blue", "orange", "green")
HATCHES = ("", "////", "....")
ROW = 0.225


def draw() -> None:
    _tile()
    _deal()


def sources() -> list[int]:
    """For each row of the tile, the page that it came from: each page is filled with its number, and loaded."""
    pages = np.empty((PAGES, P, HKV, 1), np.float32)
    pages[:] = np.arange(PAGES).reshape(-1, 1, 1, 1)
    tile = np.empty((HKV, TILE, 1), np.float32)
    load_tile(pages, np.array(TABLE, np.int32), START, START + TILE, tile)
    return [int(page) for page in tile[0, :, 0]]


def _tile() -> None:
    """The table on the left, the pool in the middle, the buffer on the right."""
    fig, ax = diagram(height=3.35)
    top, used = 2.72, list(dict.fromkeys(sources()))
    label(ax, 0.1, 3.12, "the table", align="left", bold=True)
    label(ax, 1.75, 3.12, "the pool, layer 0's keys", align="left", bold=True)
    label(ax, 5.0, 3.12, "the buffer: tile", align="left", bold=True)
    for entry, page in enumerate(TABLE):
        y = top - entry * ROW
        color = "purple" if page in used else ""
        _cell(ax, 0.62, y, 0.36, ROW, color, str(page))
        label(ax, 0.56, y + ROW / 2, f"{entry * P} …", align="right", size=8, color="muted")
    for page in range(PAGES):
        _page(ax, 1.95, top - page * ROW, page, page in used)
    rows = sources()
    for number, page in enumerate(used):
        arrow(
            ax,
            (1.02, top - TABLE.index(page) * ROW + ROW / 2),
            (1.72, top - page * ROW + ROW / 2),
            color="purple",
        )
        y = top - page * ROW + ROW / 2
        edge = 2.04 if y > 1.5 else 0.84
        arrow(ax, (4.2, y), (5.25 + number * 0.5, edge), color="purple", bend=-0.1 if y > 1.5 else 0.1)
    for head in range(HKV):
        y = 1.68 - head * 0.4
        label(ax, 4.92, y + 0.16, f"head {head}", align="right", size=8.5)
        for number, page in enumerate(used):
            width = 2.0 * rows.count(page) / TILE
            _cell(ax, 5.0 + number * width, y, width, 0.32, HEADS[head], str(page), hatch=HATCHES[head])
    label(ax, 5.0, 0.76, f"{START}", align="left", size=8, color="muted")
    label(ax, 7.0, 0.76, f"{START + TILE - 1}", align="right", size=8, color="muted")
    save(fig, "week_3_day_3")


def _page(ax: Axes, x: float, y: float, page: int, used: bool) -> None:
    """One page: 16 tokens, the heads of each side by side."""
    label(ax, x - 0.06, y + ROW / 2, str(page), align="right", size=8, color="ink" if used else "muted")
    width = 2.2 / (P * HKV)
    for row in range(P * HKV):
        head = row % HKV
        ax.add_patch(
            Rectangle(
                (x + row * width, y + 0.02),
                width,
                ROW - 0.05,
                facecolor=PALE[HEADS[head]] if used else COLORS["paper"],
                edgecolor=COLORS[HEADS[head]] if used else COLORS["line"],
                linewidth=0.5,
                hatch=HATCHES[head] if used else "",
            )
        )


def _cell(
    ax: Axes, x: float, y: float, width: float, height: float, color: str, text: str, hatch: str = ""
) -> None:
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=PALE[color] if color else COLORS["paper"],
            edgecolor=COLORS[color or "line"],
            linewidth=0.9,
            hatch=hatch,
            alpha=1.0,
        )
    )
    paper = {"facecolor": COLORS["paper"], "edgecolor": "none", "pad": 1.0} if hatch else None
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", size=8.5, bbox=paper)


def _deal() -> None:
    """Two ways to share four sequences out to two threads: whole ones, and parts."""
    fig, ax = diagram(height=2.65)
    half = len(KV_LENS) // THREADS
    whole = [
        [(f"sequence {row}", row, KV_LENS[row]) for row in range(thread * half, (thread + 1) * half)]
        for thread in range(THREADS)
    ]
    tasks = deal(np.array(KV_LENS, np.int32), np.arange(len(KV_LENS), dtype=np.int32)).tolist()
    dealt = [
        [
            (f"{row}, part {part}", row, min(PART, KV_LENS[row] - part * PART))
            for row, part in tasks[thread::2]
        ]
        for thread in range(THREADS)
    ]
    for y, title, threads in ((1.42, "sequences, in order", whole), (0.12, "parts, dealt out", dealt)):
        label(ax, 0.1, y + 0.92, title, align="left", bold=True)
        for thread, pieces in enumerate(threads):
            _lane(ax, y + 0.4 * (1 - thread), thread, pieces)
    save(fig, "week_3_day_3_deal")


def _lane(ax: Axes, y: float, thread: int, pieces: list[tuple[str, int, int]]) -> None:
    """What one thread works off, as long as it has keys."""
    x, inches = 0.85, 5.45 / 3300
    label(ax, x - 0.08, y + 0.15, f"thread {thread}", align="right", size=8.5)
    for text, row, keys in pieces:
        color = ("blue", "orange", "green", "purple")[row]
        short = text if keys > 400 else text.removeprefix("sequence ").replace("part ", "")
        _cell(ax, x, y, keys * inches - 0.03, 0.3, color, short)
        x += keys * inches
    label(
        ax,
        x + 0.05,
        y + 0.15,
        f"{sum(keys for *_, keys in pieces):,}",
        align="left",
        size=8.5,
        color="muted",
    )


if __name__ == "__main__":
    draw()
