"""The steps of a small run, noted while the reference runs, and the pages that three in line have to spare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, SERIES, diagram, label, save

from tiny_llm.batch import Request
from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.batch import PagedBatch, batch_generate_paged
from tiny_llm.paged.pool import KvPool
from tiny_llm.ragged.batch import batch_generate_ragged
from tiny_llm.ragged.decode_state import DecodeState
from tiny_llm.ragged.page_budget import PageBudget
from tiny_llm.ragged.sampling_state import SamplingState

NAMES = "ABCDEF"
LENGTHS = ((4, 5), (2, 3), (13, 6), (6, 4), (1, 4), (1, 3))  # prompt and output of each
SLOTS, PAGES, P, CAPACITY = 4, 9, 4, 8

FREE, HELD, MOST = 4, (2, 3, 2), (4, 8, 6)  # three in line
TAKEN = ((1, 1), (2, 1))  # by whom, how many


@dataclass(frozen=True)
class Token:
    request: int
    position: int
    prompt: bool
    sampled: bool  # whether its row goes through the head


@dataclass(frozen=True)
class Step:
    tokens: list[Token]  # in the order of the row that the model runs on
    pages: list[int | None]  # of each page, who holds it


def model() -> Any:
    """Always says 0, and computes nothing."""
    return SimpleNamespace(
        config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=64),
        embedding=SimpleNamespace(weight=torch.zeros(1, 1)),
        hidden=lambda tokens, positions, caches: torch.zeros(*tokens.shape, 1),
        logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 10),
    )


def requests() -> list[Request]:
    return [Request([1] * prompt, output) for prompt, output in LENGTHS]


def run() -> list[Step]:
    """Every step of the run, seen by `observe`."""
    dummy, todo = model(), requests()
    decode_state = DecodeState(KvPool(dummy.config, PAGES + 1, P), SLOTS, PAGES)
    state = SamplingState(decode_state, dummy.config.max_positions)
    number = {id(request): n for n, request in enumerate(todo)}
    produced = [0] * len(todo)
    steps = []

    def observe(slots: Sequence[Request | None], lens: Sequence[int]) -> None:
        tokens: list[Token] = []
        pages: list[int | None] = [None] * PAGES
        for slot, request in enumerate(slots):
            if request is None:
                continue
            n, stop, prompt = number[id(request)], state.position[slot], len(request.prompt_ids)
            got = len(request.output) > produced[n]
            produced[n] = len(request.output)
            places = range(stop - lens[slot], stop)
            tokens += [Token(n, p, p < prompt, got and p == stop - 1) for p in places]
            for page in decode_state.page_indices[slot].tolist():
                if page:
                    pages[page - 1] = n
        steps.append(Step(tokens, pages))

    batch_generate_ragged(dummy, state, todo, CAPACITY, observe)
    return steps


def run_of_day_2() -> list[int]:
    """Tokens of each step of Day 3.2's engine, on the same pages."""
    dummy, sums = model(), []
    batch = PagedBatch(dummy, KvPool(dummy.config, PAGES + 1, P), PageAllocator(PAGES + 1), SLOTS, CAPACITY)
    batch_generate_paged(batch, requests(), lambda plan: sums.append(sum(count for _, count in plan)))
    return sums


def draw() -> None:
    _steps(run())
    _spare()


def _steps(steps: list[Step]) -> None:
    """A line a step: the row that the model runs on, and the pages after it."""
    fig, ax = diagram(height=4.75)
    left, right, top, cell, gap = 0.75, 4.75, 3.95, 0.42, 0.11
    small = 0.235
    edge = left + CAPACITY * cell
    label(ax, left, top + 0.62, "tokens of the step, one row", align="left", size=8.5)
    label(ax, edge, top + 0.62, f"capacity {CAPACITY}", align="right", size=8.5, color="red")
    label(ax, right, top + 0.62, f"pages 1 … {PAGES} after it", align="left", size=8.5)
    height = 0.29
    bottom = top - (len(steps) - 1) * (height + gap)
    for n, step in enumerate(steps):
        y = top - n * (height + gap)
        label(ax, 0.1, y + height / 2, f"step {n}", align="left", size=8.5, color="muted")
        for t in range(CAPACITY):
            x = left + t * cell
            if t < len(step.tokens):
                _token(ax, x, y, cell, height, step.tokens[t])
            else:
                _empty(ax, x, y, cell, height)
        for page, holder in enumerate(step.pages):
            x = right + page * small
            if holder is None:
                _empty(ax, x, y, small, height)
            else:
                name = SERIES[holder]
                _box(ax, x, y, small, height, PALE[name], COLORS[name])
                label(ax, x + small / 2, y + height / 2, NAMES[holder], size=7.5)
    ax.plot([edge + 0.04] * 2, [bottom - 0.06, top + height + 0.1], color=COLORS["red"], linewidth=1.6)
    _legend(ax, left, 0.52)
    sums = run_of_day_2()
    words = f"Day 3.2 on the same pages: {len(sums)} steps of {', '.join(map(str, sums))} tokens"
    label(ax, left, 0.24, words, align="left", size=8.5)
    save(fig, "week_3_day_6")


def _token(ax: Axes, x: float, y: float, width: float, height: float, token: Token) -> None:
    name = SERIES[token.request]
    face = PALE[name] if token.prompt else COLORS[name]
    _box(ax, x, y, width, height, face, COLORS[name])
    ink = COLORS["ink"] if token.prompt else "#ffffff"
    words = f"{NAMES[token.request]}{token.position}"
    if token.sampled:
        words += " •"
    ax.text(x + width / 2, y + height / 2, words, ha="center", va="center", size=8, color=ink)


def _legend(ax: Axes, x: float, y: float) -> None:
    for words, face, ink, width in (
        ("of a prompt", PALE["blue"], COLORS["ink"], 1.15),
        ("a decode", COLORS["blue"], "#ffffff", 1.0),
    ):
        _box(ax, x, y, 0.34, 0.24, face, COLORS["blue"])
        ax.text(x + 0.17, y + 0.12, "A3", ha="center", va="center", size=7.5, color=ink)
        label(ax, x + 0.42, y + 0.12, words, align="left", size=8.5)
        x += 0.42 + width
    label(ax, x, y + 0.12, "•  its row is sampled", align="left", size=8.5)
    label(ax, x + 1.55, y + 0.12, "dashed: room, or a free page", align="left", size=8.5)


def _spare() -> None:
    """What each in line finds when its turn comes, before and after two pages were taken."""
    fig, ax = diagram(height=2.75)
    held, free = list(HELD), FREE
    budget = PageBudget(free, held, MOST)
    _panel(ax, 0.1, "now", budget, free, held)
    for place, count in TAKEN:
        budget.take(place, count)
        held[place] += count
        free -= count
    _panel(ax, 3.75, "after B has taken a page, and C another", budget, free, held)
    x, y = 0.55, 0.14
    _box(ax, x, y, 0.2, 0.2, PALE["ink"], COLORS["muted"])
    label(ax, x + 0.28, y + 0.1, "free now", align="left", size=8.5)
    _box(ax, x + 1.15, y, 0.2, 0.2, PALE[SERIES[0]], COLORS[SERIES[0]])
    label(ax, x + 1.43, y + 0.1, "held by A, free by then (B: orange)", align="left", size=8.5)
    label(ax, x + 3.95, y + 0.1, "×  lacked     blank: to spare", align="left", size=8.5)
    save(fig, "week_3_day_6_pages")


def _panel(ax: Axes, left: float, title: str, budget: PageBudget, free: int, held: Sequence[int]) -> None:
    cell, top, start = 0.215, 1.75, left + 0.3
    label(ax, left, top + 0.72, title, align="left", bold=True, size=9)
    label(ax, start, top + 0.42, "finds", align="left", size=8, color="muted")
    label(ax, left + 2.52, top + 0.42, "spare", size=8, color="muted")
    label(ax, left + 3.0, top + 0.42, "may take", size=8, color="muted")
    for place, holds in enumerate(held):
        y = top - place * 0.52
        label(ax, left + 0.1, y + cell / 2, NAMES[place], bold=True, color=SERIES[place], size=10)
        owners: list[int | None] = [None] * free
        owners += [n for n in range(place) for _ in range(held[n])]
        lacks = MOST[place] - holds
        assert len(owners) - lacks == budget.spare[place]
        for n, owner in enumerate(owners):
            x = start + n * cell
            name = "ink" if owner is None else SERIES[owner]
            line = COLORS["muted"] if owner is None else COLORS[name]
            _box(ax, x, y, cell, cell, PALE[name], line)
            if n < lacks:
                label(ax, x + cell / 2, y + cell / 2 - 0.01, "×", size=9)
        label(ax, left + 2.52, y + cell / 2, str(budget.spare[place]), bold=True, size=9.5)
        label(ax, left + 3.0, y + cell / 2, str(budget.limit(place)), bold=True, size=9.5)
        words = f"holds {holds} of {MOST[place]}, lacks {lacks}"
        label(ax, start, y - 0.11, words, align="left", size=7.5, color="muted")


def _box(ax: Axes, x: float, y: float, width: float, height: float, face: str, edge: str) -> None:
    ax.add_patch(Rectangle((x, y), width, height, facecolor=face, edgecolor=edge, linewidth=0.9))


def _empty(ax: Axes, x: float, y: float, width: float, height: float) -> None:
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=COLORS["paper"],
            edgecolor=COLORS["line"],
            linewidth=0.9,
            linestyle=(0, (2, 2)),
            zorder=0.7,
        )
    )


if __name__ == "__main__":
    draw()
