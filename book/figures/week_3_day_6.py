"""The steps of a small run, noted while the reference runs."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, SERIES, diagram, label, save

from tiny_llm.engine_core import EngineCore, generate_all
from tiny_llm.engine_core import Step as EngineStep
from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.batch import PagedBatch
from tiny_llm.paged.model_runner import ModelRunner
from tiny_llm.paged.pool import KvPool
from tiny_llm.ragged.batch import RaggedBatch
from tiny_llm.ragged.decode_state import DecodeState
from tiny_llm.request import Request

NAMES = "ABCDEF"
LENGTHS = ((4, 5), (2, 3), (13, 6), (6, 4), (1, 4), (1, 3))  # prompt and output of each
SEATS, PAGES, P, BUDGET = 4, 9, 4, 8


@dataclass(frozen=True)
class Token:
    request: int
    position: int
    prompt: bool
    sampled: bool  # whether its row goes through the head


@dataclass(frozen=True)
class Step:
    tokens: list[Token]  # in the order of the row that the model runs on
    pages: list[int | None]  # the request that holds each page after the step


def runner() -> ModelRunner:
    """A model that always says 0, and computes nothing."""
    model: Any = SimpleNamespace(
        config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=64),
        embedding=SimpleNamespace(weight=torch.zeros(10, 1)),
        hidden=lambda tokens, positions, caches: torch.zeros(*tokens.shape, 1),
        logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 10),
    )
    return ModelRunner(model, KvPool(model.config, PAGES + 1, P))


def requests() -> list[Request]:
    return [Request([1] * prompt, output) for prompt, output in LENGTHS]


def run() -> list[Step]:
    """Every step of the run, seen by `observe`."""
    core = RaggedBatch(runner(), DecodeState(PageAllocator(PAGES + 1), P, SEATS, PAGES), BUDGET)
    todo, steps = requests(), list[Step]()
    computed = [0] * len(todo)

    def observe(step: EngineStep) -> None:
        tokens: list[Token] = []
        for request, count in step.issued:
            n, prompt = todo.index(request), request.prompt_len
            start, computed[n] = computed[n], computed[n] + count
            # A request whose tokens were all computed has one token more now.
            last = computed[n] - 1 if computed[n] == len(request.token_ids) - 1 else None
            tokens += [Token(n, p, p < prompt, p == last) for p in range(start, computed[n])]
        pages: list[int | None] = [None] * PAGES
        for running in core.state.seats:
            if running is not None:
                for page in running.sequence.pages:
                    pages[page - 1] = todo.index(running.request)
        steps.append(Step(tokens, pages))

    generate_all(core, todo, observe)
    return steps


def run_of_day_2() -> list[int]:
    """Tokens of each step of Day 3.2's engine, on the same pages."""
    core: EngineCore = PagedBatch(runner(), PageAllocator(PAGES + 1), SEATS, BUDGET)
    sums: list[int] = []
    generate_all(core, requests(), lambda step: sums.append(sum(count for _, count in step.issued)))
    return sums


def draw() -> None:
    """A line per step: the row that the model runs on, and the pages after it."""
    steps = run()
    fig, ax = diagram(height=4.75)
    left, right, top, cell, gap = 0.75, 4.75, 3.95, 0.42, 0.11
    small = 0.235
    edge = left + BUDGET * cell
    label(ax, left, top + 0.62, "tokens of the step, one row", align="left", size=8.5)
    label(ax, edge, top + 0.62, f"budget {BUDGET}", align="right", size=8.5, color="red")
    label(ax, right, top + 0.62, f"pages 1 … {PAGES} after the step", align="left", size=8.5)
    height = 0.29
    bottom = top - (len(steps) - 1) * (height + gap)
    for n, step in enumerate(steps):
        y = top - n * (height + gap)
        label(ax, 0.1, y + height / 2, f"step {n}", align="left", size=8.5, color="muted")
        for t in range(BUDGET):
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
