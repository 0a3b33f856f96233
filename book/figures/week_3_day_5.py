"""The tables of a batch and where a step's tokens go; pages reserved and pages held: from the real code."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, diagram, label, new_figure, save

from tiny_llm.batch import Request
from tiny_llm.paged.allocator import NULL_PAGE, PageAllocator
from tiny_llm.paged.batch import PagedBatch, Running, batch_generate_paged
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.pool import KvPool, pages_for
from tiny_llm.ragged.decode_state import DecodeState

P, N, M = 4, 11, 4
NAMES = "ABCD"
SERIES = ("purple", "blue", "orange", "green")
STEP = [0, 1, 2, 3]  # tokens that each slot brings
CONFIG: Any = SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=1024)
END = 3  # what the requests of the second picture end with


def draw() -> None:
    _step()
    _pages()


def example() -> tuple[DecodeState, ForwardMeta]:
    """The chapter's state, once the pages for its step are allocated, and the step."""
    state = DecodeState(KvPool(CONFIG, N, P), num_slots=len(NAMES), max_pages=M)
    state.allocate([5, 6, 3, 7])
    state.advance([5, 6, 3, 7])
    state.release([False, False, False, True])
    state.allocate([0, 2, 0, 0])
    state.advance([0, 2, 0, 0])
    state.allocate([0, 0, 0, 6])  # the model failed on these
    state.allocate(STEP)
    state.check()
    return state, state.metadata(STEP)


def _step() -> None:
    """The tables on the left, the step's tokens below them, the pool on the right."""
    fig, ax = diagram(height=4.5)
    state, meta = example()
    busy = [slot for slot, count in enumerate(STEP) if count]
    _pool(ax, state, meta)
    _tables(ax, state, meta)
    _tokens(ax, meta, busy)
    save(fig, "week_3_day_5")


def _tables(ax: Axes, state: DecodeState, meta: ForwardMeta) -> None:
    """A row a slot; heavy are the pages that this step writes to."""
    top, size, left = 3.55, 0.36, 2.35
    heads = {0.95: "lengths", 1.72: "q_lens", left + M * size / 2: "page_indices"}
    for x, words in heads.items():
        label(ax, x, top + size + 0.17, words, mono=True, size=8)
    fresh = {int(slot) // P for slot in meta.slot_mapping}
    for slot, name in enumerate(NAMES):
        y = top - slot * (size + 0.1)
        label(ax, 0.1, y + size / 2, f"slot {slot}: {name}", align="left", size=8.5, bold=True)
        label(ax, 0.95, y + size / 2, str(int(state.lengths[slot])), size=8.5)
        label(ax, 1.72, y + size / 2, str(STEP[slot]), size=8.5, bold=True)
        shown = pages_for(int(state.lengths[slot]) + STEP[slot], P)
        for place, page in enumerate(state.page_indices[slot].tolist()):
            color = SERIES[slot] if page != NULL_PAGE else "muted"
            later = page != NULL_PAGE and place >= shown
            x = left + place * size
            _cell(ax, x, y, size, size, color, str(page), heavy=page in fresh, hatch="////" if later else "")
    y = top - 4 * (size + 0.1) + 0.1
    stack = state.available_page_indices
    label(ax, 0.1, y, f"available_page_indices {stack}", align="left", mono=True, size=8)
    label(ax, 0.1, y - 0.22, "hatched: held, and not needed in this step", align="left", size=8)


def _tokens(ax: Axes, meta: ForwardMeta, busy: list[int]) -> None:
    """What is reckoned for each of the T tokens."""
    left, top, width = 1.2, 1.05, 0.42
    owners = [row for row in range(len(busy)) for _ in range(meta.starts[row], meta.starts[row + 1])]
    positions, slots = meta.positions.tolist(), meta.slot_mapping.tolist()
    rows = {
        "owner": owners,
        "position": positions,
        "page": [slot // P for slot in slots],
        "slot_mapping": slots,
    }
    for t, owner in enumerate(owners):
        name, color = NAMES[busy[owner]], SERIES[busy[owner]]
        _cell(ax, left + t * width, top, width, 0.28, color, f"{name}{positions[t]}", heavy=True)
    label(ax, 0.1, top + 0.14, "token", align="left", size=8, mono=True)
    for line, (what, numbers) in enumerate(rows.items(), start=1):
        y = top + 0.1 - 0.24 * line
        label(ax, 0.1, y, what, align="left", size=8, mono=True)
        for t, number in enumerate(numbers):
            label(ax, left + (t + 0.5) * width, y, str(number), size=8.5)


def _pool(ax: Axes, state: DecodeState, meta: ForwardMeta) -> None:
    """The pages, one below the other."""
    left, top, width, height = 5.3, 3.85, 0.42, 0.27
    names: dict[int, tuple[int, str]] = {}
    for slot, name in enumerate(NAMES):
        pages = state.page_indices[slot].tolist()
        for p in range(int(state.lengths[slot]) + STEP[slot]):
            names[pages[p // P] * P + p % P] = slot, f"{name}{p}"
    fresh = set(meta.slot_mapping.tolist())
    for page in range(N):
        y = top - page * (height + 0.075)
        label(
            ax,
            left - 0.08,
            y + height / 2,
            f"page {page}" if page else "null page",
            align="right",
            size=8,
            color="muted",
        )
        for place in range(P):
            slot, words = names.get(page * P + place, (-1, ""))
            color = SERIES[slot] if words else "muted" if page == NULL_PAGE else ""
            heavy = page * P + place in fresh
            _cell(ax, left + place * width, y, width, height, color, words, heavy=heavy)
    label(ax, left, 0.16, "heavy: written in this step", align="left", size=8)


def _cell(
    ax: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    color: str,
    text: str,
    heavy: bool = False,
    hatch: str = "",
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
            zorder=0.9 if heavy else 0.8 if color else 0.7,  # heavy lines over light ones
        )
    )
    if hatch:
        ax.add_patch(
            Rectangle((x, y), width, height, fill=False, hatch=hatch, edgecolor=COLORS["line"], linewidth=0)
        )
    if text:
        ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", size=8.5)


def history() -> tuple[list[int], list[int]]:
    """Pages that Day 3.2 has reserved, and pages that a decode state holds, in each step of the same work."""
    reserved: list[int] = []
    held: list[int] = []
    pool, allocator = KvPool(CONFIG, 241, 16), PageAllocator(241)

    def hidden(tokens: torch.Tensor, positions: torch.Tensor, caches: Any) -> torch.Tensor:
        reserved.append(sum(map(bool, allocator.references)))
        return torch.zeros(*tokens.shape, 1)

    model: Any = SimpleNamespace(
        config=CONFIG,
        embedding=SimpleNamespace(weight=torch.zeros(1, 1)),
        hidden=hidden,
        logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 10),
    )
    requests = [
        Request([1] * 100, 128, {END}, lambda _, ids: END if len(ids) == 129 else 1) for _ in range(16)
    ]
    batch = PagedBatch(model, pool, allocator, max_running=16, chunk_size=128)
    state = DecodeState(pool, num_slots=16, max_pages=15)

    def observe(plan: Sequence[tuple[Running, int]]) -> None:
        counts = {id(each.request): count for each, count in plan}
        q_lens = [counts.get(id(request), 0) for request in requests]
        state.allocate(q_lens)
        state.advance(q_lens)
        held.append(sum(state.held))
        state.release([request.finished(CONFIG.max_positions) for request in requests])

    batch_generate_paged(batch, requests, observe)
    state.check()
    return reserved, held


def _pages() -> None:
    """Two lines over the steps, and what lies between them."""
    fig, ax = new_figure(height=2.3)
    reserved, held = history()
    steps = list(range(1, len(held) + 1))
    ax.fill_between(steps, held, reserved, step="mid", color=PALE["orange"])
    ax.step(steps, reserved, where="mid", color=COLORS["orange"])
    ax.step(steps, held, where="mid", color=COLORS["blue"])
    ax.set(xlim=(1, len(steps)), ylim=(0, 272), xlabel="step", ylabel="pages of 16 tokens")
    ax.text(
        17,
        247,
        "reserved for the longest that may come (Day 3.2)",
        color=COLORS["orange"],
        va="bottom",
        size=8.5,
    )
    ax.text(17.5, 92, "held, as tokens come", color=COLORS["blue"], va="top", size=8.5)
    ax.text(8, 165, "empty", color=COLORS["orange"], ha="center", size=8.5)
    save(fig, "week_3_day_5_pages")


if __name__ == "__main__":
    draw()
