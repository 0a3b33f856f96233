"""A tile of keys as the pages have it, and as registers want it."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, arrow, diagram, label, save

from tiny_llm.fast.page_tiles import TILE, find, load_keys
from tiny_llm.fast.vectors import LANES

TABLE, P, KEYS, D = (3, 8, 1, 10, 5), 4, 20, 32
"""A sequence of 20 keys on pages of 4, one head of 32 numbers."""
TONES = ("blue", "green", "orange", "purple", "red")


def tile_of_keys() -> np.ndarray:
    """Which key's number the reference's tile has at each place: [blocks, D, lanes]."""
    tokens = np.arange((max(TABLE) + 1) * P, dtype=np.float32)  # the place of each token in the pages
    pages = np.repeat(tokens, D).view(np.uint32) >> 16  # small whole numbers are exact in bfloat16
    starts, tile = np.zeros(TILE, np.int64), np.full(TILE * D, np.nan, np.float32)
    shape = (max(TABLE) + 1, P, 1, D)
    find.py_func(np.array(TABLE, np.int32), shape, 0, 0, KEYS, starts)
    load_keys.py_func(pages.astype(np.uint16), starts, KEYS, D, tile)
    blocks = tile.reshape(-1, D, LANES)[: -(-KEYS // LANES)].astype(int)
    key_at = {TABLE[key // P] * P + key % P: key for key in range(KEYS)}
    return np.vectorize(key_at.__getitem__)(blocks)


HEIGHT, WIDTH, TOP, BOTTOM = 0.092, 0.108, 2.2, 0.62
NUMBER = D // 3
"""Which of a key's numbers is shown as a register."""


def draw() -> None:
    """Keys as pages have them, each in a row, and as the tile has them, 16 side by side."""
    fig, ax = diagram(height=2.6)
    label(ax, 0.62, 2.43, "keys on pages", align="left", bold=True)
    for key in range(KEYS):
        _draw_key(ax, key, 0.62)
    arrow(ax, (2.4, 1.2), (2.75, 1.2))
    label(ax, 3.15, 2.43, "the tile: 16 keys side by side", align="left", bold=True)
    for block, numbers in enumerate(tile_of_keys()):
        _draw_block(ax, block, numbers, 3.15 + block * 2.0)
    save(fig, "week_4_day_7_keys")


def _draw_key(ax: Axes, key: int, left: float) -> None:
    y, face = TOP - (key + 1) * HEIGHT - 0.03 * (key // P), PALE[TONES[key // P]]
    ax.add_patch(Rectangle((left, y), 1.15, HEIGHT * 0.86, facecolor=face, linewidth=0))
    if key % P == 0:
        label(ax, left - 0.07, y + HEIGHT / 2, f"key {key}", align="right", size=7, color="muted")
        label(ax, left + 1.22, y - HEIGHT, f"page {TABLE[key // P]}", align="left", size=7.5, color="muted")


def _draw_block(ax: Axes, block: int, numbers: np.ndarray, left: float) -> None:
    """A block [D, lanes] of the tile, with the register of one number."""
    height, middle = 1.45, left + LANES * WIDTH / 2
    for lane in range(LANES):
        (key,) = set(numbers[:, lane].tolist())  # in all rows the same
        repeated, x, tone = lane > 0 and key == numbers[0, lane - 1], left + lane * WIDTH, TONES[key // P]
        ax.add_patch(
            Rectangle(
                (x, BOTTOM),
                WIDTH * 0.88,
                height,
                facecolor=COLORS["paper"] if repeated else PALE[tone],
                edgecolor=PALE[tone],
                hatch="////" if repeated else None,
                linewidth=0,
            )
        )
        if not repeated:
            label(ax, x + WIDTH / 2, TOP - 0.04, str(key), size=5.6, color="muted")
    y = BOTTOM + height * (1 - (NUMBER + 1) / D)
    frame = (left - 0.02, y), LANES * WIDTH + 0.03, 0.1
    ax.add_patch(Rectangle(*frame, fill=False, edgecolor=COLORS["ink"], linewidth=1.1))
    arrow(ax, (middle, BOTTOM - 0.04), (middle, BOTTOM - 0.26))
    if block == 0:
        label(ax, left - 0.07, y + 0.05, "i", align="right", size=8.5)
        label(ax, middle, 0.22, "Σ number i · query[i]: 16 scores", size=8)
    else:
        label(ax, middle, 0.22, "4 scores; the rest doesn't count", size=8)


if __name__ == "__main__":
    draw()
