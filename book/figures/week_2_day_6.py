"""A batch of slots aligned on the right, and the mask of a batch: what the real cache and mask give."""

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, matrix, new_figure, save

from tiny_llm.attention import batched_causal_mask
from tiny_llm.kv_cache import BatchingKvCache, FullKvCache

PAST = (5, 2, None, 7)  # tokens in each slot before the step; None is an idle slot
L, LENGTHS = 2, (5, 3, 0)


def draw() -> None:
    draw_slots()
    draw_mask()


def marks(first: int, count: int) -> torch.Tensor:
    """Keys [1, 1, count, 1] that tell their position: position + 1, for 0 is padding."""
    return torch.arange(first + 1.0, first + count + 1).reshape(1, 1, count, 1)


def batch_of_keys() -> torch.Tensor:
    """The keys [B, S] that `BatchingKvCache` makes of PAST and one new token each."""
    batching = BatchingKvCache(len(PAST))
    new = torch.zeros(len(PAST), 1, 1, 1)
    for slot, length in enumerate(PAST):
        if length is not None:
            cache = FullKvCache()
            cache.append(marks(0, length), marks(0, length))
            batching.add(slot, cache)
            new[slot] = marks(length, 1)
    keys, _, _ = batching.update_and_fetch(new, new)
    return keys[:, 0, :, 0]


def draw_slots() -> None:
    keys = batch_of_keys()
    S = keys.shape[1]
    fig, ax = new_figure(height=2.6)
    fills = [["blue" if cell else "muted" for cell in row] for row in keys.tolist()]
    for row, slot in zip(fills, PAST, strict=True):
        if slot is not None:
            row[-1] = "orange"
    matrix(
        ax,
        keys.numpy(),
        texts=[[f"{int(cell) - 1}" if cell else "" for cell in row] for row in keys.tolist()],
        fills=fills,
        row_labels=[
            f"slot {slot}: " + ("idle" if length is None else f"{length} old, 1 new")
            for slot, length in enumerate(PAST)
        ],
        col_labels=[str(column) for column in range(S)],
    )
    for slot, column in (keys == 0).nonzero().tolist():
        hatched = Rectangle(
            (column, slot), 1, 1, fill=False, edgecolor=COLORS["line"], hatch="///", linewidth=0
        )
        ax.add_patch(hatched)
    ax.text(-0.12, -0.26, "column", ha="right", va="center", size=8.5, color=COLORS["muted"])
    legend(
        ax, [("blue", "a token kept: its position"), ("orange", "the new token"), ("muted", "padding, zeros")]
    )
    save(fig, "week_2_day_6_slots")


def draw_mask() -> None:
    mask = batched_causal_mask(L, LENGTHS)[:, 0]
    S = mask.shape[-1]
    fig, axes = new_figure(height=1.7, cols=len(LENGTHS))
    for b, (ax, length) in enumerate(zip(axes, LENGTHS, strict=True)):
        seen = (mask[b] == 0).tolist()
        hidden = [["muted" if j < S - length else "yellow" for j in range(S)] for _ in range(L)]
        matrix(
            ax,
            mask[b].numpy(),
            texts=[["0" if cell else "−∞" for cell in row] for row in seen],
            fills=[
                ["blue" if cell else other for cell, other in zip(*rows, strict=True)]
                for rows in zip(seen, hidden, strict=True)
            ],
            row_labels=[f"query {i}" for i in range(L)] if b == 0 else (),
            col_labels=[str(j) for j in range(S)],
        )
        ax.set_yticks([i + 0.5 for i in range(L)], [f"query {i}" for i in range(L)] if b == 0 else [""] * L)
        ax.set_xlabel(f"row {b}: " + (f"{length} tokens" if length else "idle"))
    legend(axes[1], [("blue", "seen"), ("yellow", "hidden: the future"), ("muted", "hidden: padding")], -0.55)
    save(fig, "week_2_day_6_mask")


def legend(ax: Axes, entries: list[tuple[str, str]], below: float = -0.04) -> None:
    """One line under the grid."""
    handles = [Rectangle((0, 0), 1, 1, facecolor=PALE[c], edgecolor=COLORS[c]) for c, _ in entries]
    ax.legend(
        handles,
        [text for _, text in entries],
        loc="upper center",
        bbox_to_anchor=(0.5, below),
        ncols=len(entries),
        handlelength=1.2,
    )


if __name__ == "__main__":
    draw()
