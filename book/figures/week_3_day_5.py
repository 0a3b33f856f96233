"""A table that follows its sequences; pages reserved and pages held; the banker's table: from the real code."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, diagram, label, new_figure, save

from tiny_llm.engine_core import Step, generate_all
from tiny_llm.paged.allocator import NULL_PAGE, PageAllocator
from tiny_llm.paged.batch import PagedBatch
from tiny_llm.paged.model_runner import ModelRunner
from tiny_llm.paged.places import pages_for
from tiny_llm.paged.pool import KvPool
from tiny_llm.ragged.banker import Banker
from tiny_llm.ragged.decode_state import DecodeState
from tiny_llm.request import Request

NAMES = "ABCD"
SERIES = ("purple", "blue", "orange", "green")
P, M = 4, 4
STEP = [0, 1, 2, 3]  # tokens that each seat of the table brings
FREE, HELD, MOST = 4, (2, 4, 3, 0), (4, 9, 6, 3)  # four in line
TAKEN = ((1, 1), (3, 1))  # which request, how many pages
CONFIG: Any = SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=1024)
END = 3  # what the requests of the second picture end with


def draw() -> None:
    _table()
    _pages()
    _banker()


def example() -> DecodeState:
    """The chapter's state, before its step."""
    state = DecodeState(PageAllocator(11), P, num_seats=len(NAMES), max_pages=M)
    for q_lens, computed in (([5, 6, 3, 7], True), ([0, 2, 0, 0], True), ([0, 0, 0, 6], False)):
        state.allocate(q_lens)
        for sequence, count in zip(state.sequences, q_lens, strict=True):
            sequence.advance(count if computed else 0)  # the model failed on the last ones
        if q_lens[0]:
            state.release([False, False, False, True])
    return state


def _table() -> None:
    """The state before the step's pages were taken, and after it."""
    fig, ax = diagram(height=2.95)
    state = example()
    before = state.page_indices.tolist()
    _rows(ax, 0.1, "before", state, before, wanted=[0] * len(NAMES))
    state.allocate(STEP)
    state.check()
    _rows(ax, 3.75, f"after allocate({STEP})", state, before, wanted=STEP)
    label(ax, 0.1, 0.14, "heavy: written in this step", align="left", size=8.5)
    label(ax, 3.75, 0.14, "hatched: held, and not needed in this step", align="left", size=8.5)
    save(fig, "week_3_day_5")


def _rows(
    ax: Axes, left: float, title: str, state: DecodeState, before: list[list[int]], wanted: Sequence[int]
) -> None:
    """A row for each seat, and the free pages below."""
    top, size, first = 1.95, 0.34, left + 1.55
    label(ax, left, top + 0.86, title, align="left", bold=True, size=9)
    for x, words in ((left + 1.1, "length"), (first + M * size / 2, "page_indices")):
        label(ax, x, top + size + 0.14, words, mono=True, size=8)
    for seat, (name, sequence) in enumerate(zip(NAMES, state.sequences, strict=True)):
        y = top - seat * (size + 0.07)
        label(ax, left, y + size / 2, f"seat {seat}: {name}", align="left", size=8.5, bold=True)
        label(ax, left + 1.1, y + size / 2, str(sequence.length), size=8.5)
        needed = pages_for(sequence.length + wanted[seat], P)
        for column, page in enumerate(state.page_indices[seat].tolist()):
            color = SERIES[seat] if page != NULL_PAGE else "muted"
            spare = page != NULL_PAGE and column >= needed
            heavy = page != before[seat][column]
            _cell(ax, first + column * size, y, size, color, str(page), heavy, hatch="////" if spare else "")
    y = top - len(NAMES) * (size + 0.07) + 0.16
    label(ax, left, y, f"free pages {state.available_page_indices}", align="left", mono=True, size=8)


def _cell(
    ax: Axes, x: float, y: float, size: float, color: str, text: str, heavy: bool = False, hatch: str = ""
) -> None:
    """A square; heavy lines lie over light ones."""
    style: dict[str, Any] = {
        "facecolor": PALE[color] if color else COLORS["paper"],
        "edgecolor": COLORS[color or "line"],
        "linewidth": 2.2 if heavy else 0.9,
        "zorder": 0.9 if heavy else 0.8,
    }
    ax.add_patch(Rectangle((x, y), size, size, **style))
    if hatch:
        ax.add_patch(
            Rectangle((x, y), size, size, fill=False, hatch=hatch, edgecolor=COLORS["line"], linewidth=0)
        )
    if text:
        ax.text(x + size / 2, y + size / 2, text, ha="center", va="center", size=8.5)


def history() -> tuple[list[int], list[int]]:
    """Pages that Day 3.2 has reserved, and pages that a decode state holds, in each step of the same work."""
    reserved: list[int] = []
    held: list[int] = []
    allocator = PageAllocator(241)

    def hidden(tokens: torch.Tensor, positions: torch.Tensor, caches: Any) -> torch.Tensor:
        reserved.append(sum(map(bool, allocator.references)))
        return torch.zeros(*tokens.shape, 1)

    model: Any = SimpleNamespace(
        config=CONFIG,
        embedding=SimpleNamespace(weight=torch.zeros(10, 1)),
        hidden=hidden,
        logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 10),
    )
    requests = [
        Request([1] * 100, 128, {END}, lambda _, ids: END if len(ids) == 129 else 1) for _ in range(16)
    ]
    runner = ModelRunner(model, KvPool(CONFIG, 241, 16))
    core = PagedBatch(runner, allocator, max_running=16, chunk_size=128)
    state = DecodeState(PageAllocator(241), 16, num_seats=16, max_pages=15)

    def observe(step: Step) -> None:
        counts = dict(step.issued)
        q_lens = [counts.get(request, 0) for request in requests]
        state.allocate(q_lens)
        for sequence, count in zip(state.sequences, q_lens, strict=True):
            sequence.advance(count)
        held.append(sum(state.held))
        state.release([request in step.finished for request in requests])

    generate_all(core, requests, observe)
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
    words = "reserved for the longest that may come (Day 3.2)"
    ax.text(17, 247, words, color=COLORS["orange"], va="bottom", size=8.5)
    ax.text(17.5, 92, "held, as tokens come", color=COLORS["blue"], va="top", size=8.5)
    ax.text(8, 165, "empty", color=COLORS["orange"], ha="center", size=8.5)
    save(fig, "week_3_day_5_pages")


def _banker() -> None:
    """What each in line finds when its turn comes, before and after two pages were taken."""
    fig, ax = diagram(height=3.2)
    held, free = list(HELD), FREE
    banker = Banker(free, held, MOST)
    _line(ax, 0.1, "now", banker, held)
    for rank, count in TAKEN:
        banker.take(rank, count)
        held[rank] += count
    _line(ax, 3.75, "after B has taken a page, and D another", banker, held)
    x, y, size = 0.1, 0.12, 0.2
    _cell(ax, x, y, size, "muted", "")
    label(ax, x + 0.28, y + 0.1, "free now", align="left", size=8.5)
    _cell(ax, x + 1.15, y, size, SERIES[0], "")
    label(ax, x + 1.43, y + 0.1, "held by A, free by then (B: blue, C: orange)", align="left", size=8.5)
    label(ax, x + 4.45, y + 0.1, "×  lacked     no ×: to spare", align="left", size=8.5)
    save(fig, "week_3_day_5_banker")


def _line(ax: Axes, left: float, title: str, banker: Banker, held: Sequence[int]) -> None:
    """A row for each request in line: the pages that it finds, and a cross for each that it lacks."""
    cell, top, start = 0.165, 2.2, left + 0.25
    label(ax, left, top + 0.72, title, align="left", bold=True, size=9)
    for x, words in ((start + 0.2, "finds"), (left + 2.7, "spare"), (left + 3.15, "limit")):
        label(ax, x, top + 0.38, words, size=8, color="muted")
    for rank, holds in enumerate(held):
        y = top - rank * 0.5
        label(ax, left + 0.08, y + cell / 2, NAMES[rank], bold=True, color=SERIES[rank], size=10)
        found = ["muted"] * banker.free + [SERIES[n] for n in range(rank) for _ in range(held[n])]
        lacks = MOST[rank] - holds
        assert len(found) - lacks == banker.spare[rank]
        for n, color in enumerate(found):
            _cell(ax, start + n * cell, y, cell, color, "×" if n < lacks else "")
        label(ax, left + 2.7, y + cell / 2, str(banker.spare[rank]), bold=True, size=9.5)
        label(ax, left + 3.15, y + cell / 2, str(banker.limit(rank)), bold=True, size=9.5)
        words = f"holds {holds} of {MOST[rank]}, lacks {lacks}"
        label(ax, start, y - 0.1, words, align="left", size=7.5, color="muted")


if __name__ == "__main__":
    draw()
