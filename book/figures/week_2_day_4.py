"""Which tiles flash attention computes, and which of them need a mask: noted while the real loop runs."""

from unittest import mock

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, new_figure, save

from tiny_llm import flash_attention as flash

Tile = tuple[slice, slice, bool]


def computed_tiles(L: int, S: int, query_tile: int, key_tile: int) -> list[Tile]:
    """Queries, keys and whether a mask was added, of each tile in the order in which they come."""
    tiles: list[Tile] = []
    tile_mask = flash.tile_mask

    def note(mask: None, causal: bool, queries: slice, keys: slice, *rest: object) -> object:
        added = tile_mask(mask, causal, queries, keys, *rest)  # type: ignore[arg-type]
        tiles.append((queries, keys, added is not None))
        return added

    query, key = torch.zeros(1, 1, L, 1), torch.zeros(1, 1, S, 1)
    with mock.patch.object(flash, "tile_mask", note):
        flash.flash_attention(query, key, key, causal=True, query_tile=query_tile, key_tile=key_tile)
    return tiles


def draw() -> None:
    fig, (whole, chunk) = new_figure(height=3.5, cols=2, width_ratios=(12, 15))
    draw_tiles(whole, 12, 12, 4, 3)
    draw_tiles(chunk, 6, 15, 3, 4)
    chunk.legend(
        handles=[
            Rectangle((0, 0), 1, 1, facecolor=PALE["blue"], edgecolor=COLORS["blue"]),
            Rectangle((0, 0), 1, 1, facecolor=PALE["orange"], edgecolor=COLORS["orange"], hatch="///"),
            Rectangle((0, 0), 1, 1, facecolor=COLORS["paper"], edgecolor=COLORS["line"]),
        ],
        labels=["computed, without a mask", "computed, with a mask", "hidden, not computed"],
        loc="upper left",
        bbox_to_anchor=(-0.02, -0.2),
        handlelength=1.4,
    )
    save(fig, "week_2_day_4")


def draw_tiles(ax: Axes, L: int, S: int, query_tile: int, key_tile: int) -> None:
    for first in range(0, L, query_tile):
        for left in range(0, S, key_tile):
            width, height = min(key_tile, S - left), min(query_tile, L - first)
            ax.add_patch(
                Rectangle((left, first), width, height, facecolor=COLORS["paper"], edgecolor=COLORS["line"])
            )
    for number, (queries, keys, masked) in enumerate(computed_tiles(L, S, query_tile, key_tile), start=1):
        color = "orange" if masked else "blue"
        width, height = keys.stop - keys.start, queries.stop - queries.start
        corner = (keys.start + 0.06, queries.start + 0.06)
        ax.add_patch(
            Rectangle(
                corner,
                width - 0.12,
                height - 0.12,
                facecolor=PALE[color],
                edgecolor=COLORS[color],
                linewidth=1.1,
                hatch="///" if masked else None,
            )
        )
        # Bottom left is a place that the causal rule never hides within a tile that is computed.
        plate = {"boxstyle": "round,pad=0.15", "facecolor": PALE[color], "edgecolor": "none"}
        number_place = (keys.start + 0.5, queries.stop - 0.5)
        ax.text(*number_place, str(number), ha="center", va="center", size=10, bbox=plate)
    draw_edge(ax, L, S)
    ax.set(xlim=(0, S), ylim=(L, 0), aspect="equal", xlabel="key", ylabel="query")
    ax.set_xticks([s + 0.5 for s in range(S)], [str(s) for s in range(S)])
    ax.set_yticks([i + 0.5 for i in range(L)], [str(i) for i in range(L)])
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)


def draw_edge(ax: Axes, L: int, S: int) -> None:
    """The stairs between what the causal rule shows (left) and what it hides (right)."""
    xs, ys = [], []
    for i in range(L):
        xs += [S - L + i + 1] * 2
        ys += [i, i + 1]
    ax.plot(xs, ys, color=COLORS["ink"], linewidth=1.6, clip_on=False)


if __name__ == "__main__":
    draw()
