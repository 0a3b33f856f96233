"""Two pictures of preemption: the pages of the chapter's three requests, noted while the reference runs; and what was
measured on pools of different sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, diagram, label, save
from torch import Tensor

from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.model_runner import ModelRunner
from tiny_llm.paged.pool import KvPool
from tiny_llm.prefix.trie_cache import TrieCache
from tiny_llm.request import Request
from tiny_llm.scheduling.batch import ExtendBatch
from tiny_llm.scheduling.preemption import PreemptiveScheduler
from tiny_llm.scheduling.standing import Chunk

NAMES = "ABC"
COLOR = {"A": "blue", "B": "orange", "C": "green"}
LENGTHS = ((5, 6), (8, 5), (4, 3))  # prompt and output of each
PAGES, P, BUDGET = 5, 4, 8

LEFT, COLUMN, PLACE, ROW, HEIGHT = 0.78, 0.705, 0.155, 0.4, 0.235
UNHELD = "tree"


@dataclass(frozen=True)
class Page:
    """A page in one step: its holder, "" for a free page, and the positions of the tokens in it."""

    holder: str
    first: int  # position of its first token
    old: int  # tokens that it had before this step
    count: int  # tokens that it has


@dataclass(frozen=True)
class Step:
    brings: list[tuple[str, int]]
    preempted: list[str]
    found: int
    pages: list[Page]


class Recorder(ExtendBatch):
    """Notes the pages when the model has run, before finished requests leave."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.names: dict[Request, str] = {}
        self.positions = dict.fromkeys(range(1, PAGES + 1), 0)  # of the first token of each page
        self.steps: list[Step] = []

    def sample(self, plan: Sequence[Chunk], hidden: Tensor) -> None:
        cache = self.scheduler.cache
        assert isinstance(cache, TrieCache)
        pages = dict.fromkeys(range(1, PAGES + 1), Page("", 0, 0, 0))
        for node in cache.unheld:
            pages[node.page] = Page(UNHELD, self.positions[node.page], P, P)
        computed = {chunk.running: chunk.count for chunk in plan}
        for running in self.scheduler.running:
            length = running.sequence.length
            old = length - computed.get(running, 0)
            for index, page in enumerate(running.sequence.pages):
                first = self.positions[page] = index * P
                counts = (max(0, min(P, tokens - first)) for tokens in (old, length))
                pages[page] = Page(self.names[running.request], first, *counts)
        self.steps.append(
            Step(
                [(self.names[chunk.running.request], chunk.count) for chunk in plan],
                [self.names[request] for request in self.scheduler.preempted],
                sum(chunk.found for chunk in plan),
                list(pages.values()),
            )
        )
        super().sample(plan, hidden)


def run() -> list[Step]:
    """The three requests, with a model that always says 0, and computes nothing."""
    model: Any = SimpleNamespace(
        config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=64),
        embedding=SimpleNamespace(weight=torch.zeros(30, 1)),
        hidden=lambda tokens, positions, caches: torch.zeros(*tokens.shape, 1),
        logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 30),
    )
    runner = ModelRunner(model, KvPool(model.config, PAGES + 1, P))
    scheduler = PreemptiveScheduler(TrieCache(PageAllocator(PAGES + 1), P), 64, token_budget=BUDGET)
    core = Recorder(runner, scheduler)
    for number, (name, (prompt, output)) in enumerate(zip(NAMES, LENGTHS, strict=True)):
        request = Request(range(1 + 10 * number, 1 + 10 * number + prompt), output)
        core.names[request] = name
        core.push(request)
    while core.requests:
        core.step()
    return core.steps


def draw() -> None:
    """A column per step, a row per page."""
    steps = run()
    fig, ax = diagram(height=3.35)
    top = 2.42
    label(ax, 0.1, top + 0.66, "step", align="left", size=8.5, color="muted")
    label(ax, 0.1, top + 0.44, "brings", align="left", size=8.5, color="muted")
    for page in range(PAGES):
        y = top - page * ROW - HEIGHT / 2
        label(ax, 0.1, y, f"page {page + 1}", align="left", size=8.5)
    for number, step in enumerate(steps):
        x = LEFT + number * COLUMN
        middle = x + 2 * PLACE
        label(ax, middle, top + 0.66, str(number), size=8.5, color="muted")
        _brings(ax, middle, top + 0.44, step)
        for page, seen in enumerate(step.pages):
            before = steps[number - 1].pages[page].holder if number else ""
            _page(ax, x, top - page * ROW - HEIGHT, seen, before)
        _event(ax, middle, top + 0.2, step)
    _legend(ax, LEFT, 0.13)
    save(fig, "week_4_day_3")


def _brings(ax: Axes, middle: float, y: float, step: Step) -> None:
    """What each request brings, in its color."""
    width = 0.215
    x = middle - (len(step.brings) - 1) * width / 2
    for name, count in step.brings:
        label(ax, x, y, f"{name}{count}", size=8.5, color=COLOR[name], bold=True)
        x += width


def _event(ax: Axes, middle: float, y: float, step: Step) -> None:
    if step.preempted:
        label(ax, middle, y, f"{', '.join(step.preempted)} preempted", size=7.5, color="red")
    elif step.found:
        label(ax, middle, y, f"{step.found} found", size=7.5)


def _page(ax: Axes, x: float, y: float, page: Page, before: str) -> None:
    """The four places of a page; its holder's name stands above it when it is new there."""
    name = COLOR.get(page.holder, "muted")
    for offset in range(P):
        left = x + offset * PLACE
        if offset >= page.count:
            _place(ax, left, y, COLORS["paper"], COLORS["line"])
            continue
        new = offset >= page.old
        face = COLORS["line"] if page.holder == UNHELD else COLORS[name] if new else PALE[name]
        _place(ax, left, y, face, COLORS[name])
        ink = "#ffffff" if new else COLORS["muted" if page.holder == UNHELD else "ink"]
        words = str(page.first + offset)
        ax.text(left + PLACE / 2, y + HEIGHT / 2, words, ha="center", va="center", size=6.8, color=ink)
    edge = COLORS[name] if page.holder else COLORS["line"]
    style = "-" if page.holder else (0, (2, 2))
    ax.add_patch(
        Rectangle((x, y), P * PLACE, HEIGHT, facecolor="none", edgecolor=edge, linewidth=1.2, linestyle=style)
    )
    if page.holder in COLOR and page.holder != before:
        label(ax, x + 0.045, y + HEIGHT + 0.075, page.holder, size=7.5, color=name, bold=True)


def _place(ax: Axes, x: float, y: float, face: str, edge: str) -> None:
    ax.add_patch(Rectangle((x, y), PLACE, HEIGHT, facecolor=face, edgecolor=edge, linewidth=0.5, zorder=0.8))


def _legend(ax: Axes, x: float, y: float) -> None:
    for words, face, ink, edge, width in (
        ("computed in this step", COLORS["blue"], "#ffffff", "blue", 1.75),
        ("computed before", PALE["blue"], COLORS["ink"], "blue", 1.42),
        ("unheld: only the tree has it", COLORS["line"], COLORS["muted"], "muted", 2.08),
    ):
        _place(ax, x, y, face, COLORS[edge])
        ax.text(x + PLACE / 2, y + HEIGHT / 2, "3", ha="center", va="center", size=6.8, color=ink)
        label(ax, x + 0.23, y + HEIGHT / 2, words, align="left", size=8.5)
        x += width
    label(ax, x, y + HEIGHT / 2, "3: position", align="left", size=8.5)


if __name__ == "__main__":
    draw()
