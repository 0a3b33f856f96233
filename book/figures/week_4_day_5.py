"""Fork and join: the tree of pages while two questions hold their branches, from a run of the reference engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle
from style import COLORS, PALE, diagram, label, save

from tiny_llm.documents.batch import DocumentBatch
from tiny_llm.documents.join import Join, Question
from tiny_llm.documents.page_cache import DocumentCache
from tiny_llm.documents.prompt import Segments
from tiny_llm.documents.request import DocumentRequest
from tiny_llm.documents.runner import DocumentRunner
from tiny_llm.documents.scheduler import DocumentScheduler
from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.pool import KvPool
from tiny_llm.request import Request

P, PAGES = 4, 11
SYSTEM, DOCUMENTS = 6, (5, 9, 1)
ASKED = {"A": ((0, 1, 2), 3), "B": ((1, 0), 2)}  # which documents, and how many tokens the question has
FILL = {
    "s": "blue",
    "a": "orange",
    "b": "green",
    "c": "yellow",
    "A": "purple",
    "B": "red",
}  # by a token's name
HOLDER = {"tree": "ink", "A": "purple", "B": "red"}

CELL, HEIGHT, GAP, LEFT, ROW = 0.29, 0.27, 0.17, 0.36, 0.62
ROWS = (0, 2, 4, 0.7, 3, 1, 3.4)  # of A's three branches and its question, then of B's


def name_tokens() -> dict[int, str]:
    """A short name for each token id of the example: the letter of its segment, and its number there."""
    names = {10 + i: f"s{i}" for i in range(SYSTEM)}
    for number, length in enumerate(DOCUMENTS):
        names |= {20 + 10 * number + i: f"{'abc'[number]}{i}" for i in range(length)}
    return names


class Story:
    """The engine of the chapter's example, with a model that computes nothing."""

    def __init__(self) -> None:
        model: Any = SimpleNamespace(
            config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=64),
            embedding=SimpleNamespace(weight=torch.zeros(100, 1)),
            hidden=lambda tokens, positions, caches: torch.zeros(*tokens.shape, 1),
            logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 100),
        )
        self.cache = DocumentCache(PageAllocator(PAGES + 1), P)
        runner = DocumentRunner(model, KvPool(model.config, PAGES + 1, P))
        self.scheduler = DocumentScheduler(self.cache, 64)
        self.core = DocumentBatch(runner, self.scheduler)
        self.words = name_tokens()
        self.names: dict[Request, str] = {}

    def step(self, name: str = "") -> None:
        """Push a request, if it is named, and run a step."""
        if name:
            numbers, length = ASKED[name]
            ids = list(self.words)
            system = tuple(token for token in ids if token < 20)
            documents = tuple(tuple(token for token in ids if token // 10 == 2 + n) for n in numbers)
            question = tuple(60 + 10 * len(self.names) + i for i in range(length))
            self.words |= {token: f"{name}{i}" for i, token in enumerate(question)}
            request = DocumentRequest(Segments(system, documents, question), max_tokens=4)
            self.names[request] = name
            self.core.push(request)
        self.core.step()

    @property
    def joins(self) -> list[tuple[str, Join]]:
        return [(self.names[join.request], join) for join in self.scheduler.joins]


@dataclass
class Page:
    """A page at the moment of the drawing."""

    number: int
    words: list[str]
    column: int
    row: float
    parent: int  # the page before it; 0 for the root
    holders: Counter[str]  # "tree" is one of them if the page is in the tree


def look(story: Story) -> dict[int, Page]:
    """The pages of all members, by number, each in the row of the branch that has it first."""
    pages: dict[int, Page] = {}
    members = [(name, each) for name, join in story.joins for each in join.sequence.members]
    for row, (name, member) in zip(ROWS, members, strict=False):
        asking, parent = isinstance(member, Question), 0
        words = [
            f"{name}{i}" if asking else story.words[member.request.token_ids[i]]
            for i in range(member.sequence.length)
        ]
        for depth, number in enumerate(member.sequence.pages):
            column, inside = (4 if asking else depth), words[depth * P : (depth + 1) * P]
            page = pages.setdefault(number, Page(number, inside, column, row, parent, Counter()))
            page.holders[name] += 1
            parent = number
    for node in story.cache.nodes():
        pages[node.page].holders["tree"] = 1
    for number, page in pages.items():
        if page.holders.total() != story.cache.allocator.references[number]:
            raise RuntimeError(f"page {number} has other references than the drawing shows")
    return pages


def draw() -> None:
    story = Story()
    story.step("A")
    story.step("B")
    draw_tree(story, look(story))


def draw_tree(story: Story, pages: dict[int, Page]) -> None:
    """The tree from left to right, and at the right the questions that join its branches."""
    fig, ax = diagram(height=3.42)
    top = 3.1
    root = _middle(top, 0)
    ax.plot([0.16], [root], marker="o", markersize=7, color=COLORS["ink"])
    for page in pages.values():
        if page.column < 4:
            _edge(ax, pages, page, root, top)
    for place, (name, join) in enumerate(story.joins):
        _join(ax, pages, name, join, 5.66 + 0.13 * place, top)
    for page in pages.values():
        _page(ax, page, top)
    label(ax, 6.53, 3.27, "questions", size=8.5, color="muted")
    label(
        ax,
        LEFT,
        3.27,
        "the tree, and behind it the pages of one branch",
        align="left",
        size=8.5,
        color="muted",
    )
    save(fig, "week_4_day_5")


def _x(page: Page) -> float:
    return LEFT + page.column * (P * CELL + GAP) + (0.3 if page.column == 4 else 0.0)


def _middle(top: float, row: float) -> float:
    return top - 0.36 - row * ROW


def _edge(ax: Axes, pages: dict[int, Page], page: Page, root: float, top: float) -> None:
    """A line to a page from the page before it; dashed to a page that isn't in the tree."""
    before = pages.get(page.parent)
    x, y = (_x(before) + P * CELL, _middle(top, before.row)) if before else (0.16, root)
    end, bottom = _x(page), _middle(top, page.row)
    bend = end - GAP / 2
    dashed = not page.holders["tree"]
    style = (0, (2, 1.6)) if dashed else "-"
    ax.plot(
        [x, bend, bend, end],
        [y, y, bottom, bottom],
        color=COLORS["muted"],
        linewidth=1.2,
        linestyle=style,
        zorder=0.5,
    )


def _join(ax: Axes, pages: dict[int, Page], name: str, join: Join, bar: float, top: float) -> None:
    """Lines from the last page of each branch to the question."""
    color = COLORS[HOLDER[name]]
    ends = [pages[each.sequence.pages[-1]] for each in join.question.branches]
    asking = pages[join.question.sequence.pages[0]]
    heights = [_middle(top, page.row) for page in ends]
    for page, y in zip(ends, heights, strict=True):
        ax.plot([_x(page) + P * CELL, bar], [y, y], color=color, linewidth=1.2, zorder=0.6)
    middle = _middle(top, asking.row)
    ax.plot(
        [bar, bar], [min(*heights, middle), max(*heights, middle)], color=color, linewidth=1.2, zorder=0.6
    )
    ax.annotate(
        "",
        (_x(asking), middle),
        (bar, middle),
        arrowprops={"arrowstyle": "-|>", "color": color, "shrinkA": 0, "shrinkB": 0},
    )


def _page(ax: Axes, page: Page, top: float) -> None:
    """The tokens of a page, and above them its number and its references."""
    x, y = _x(page), _middle(top, page.row) - HEIGHT / 2
    for offset in range(P):
        word = page.words[offset] if offset < len(page.words) else ""
        _cell(ax, x + offset * CELL, y, word)
    in_tree = page.holders["tree"]
    ax.add_patch(
        Rectangle(
            (x, y),
            P * CELL,
            HEIGHT,
            facecolor="none",
            edgecolor=COLORS["ink" if in_tree else "muted"],
            linewidth=1.3,
            linestyle="-" if in_tree else (0, (3, 2)),
        )
    )
    label(ax, x + 0.01, y + HEIGHT + 0.1, str(page.number), align="left", size=8, bold=True)
    right = x + P * CELL
    for name in ("B", "A", "tree"):
        count = page.holders[name]
        text = f"{count} {name}" if count > 1 else name
        width = 0.28 if name == "tree" else 0.08 + 0.065 * len(text)
        if count:
            _chip(ax, right - width, y + HEIGHT + 0.035, width, name, text)
            right -= width + 0.03
    if page.column == 4 and in_tree:
        label(ax, x + P * CELL / 2, y - 0.1, "in the tree, too: salted", size=7.6, color="muted")


def _cell(ax: Axes, x: float, y: float, word: str) -> None:
    face = PALE[FILL[word[0]]] if word else COLORS["paper"]
    ax.add_patch(
        Rectangle((x, y), CELL, HEIGHT, facecolor=face, edgecolor=COLORS["line"], linewidth=0.7, zorder=0.9)
    )
    ax.text(x + CELL / 2, y + 0.09, word, ha="center", size=7.6)


def _chip(ax: Axes, x: float, y: float, width: float, name: str, text: str) -> None:
    """The references of one holder to a page."""
    ax.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            0.145,
            boxstyle="round,pad=0,rounding_size=0.04",
            facecolor=COLORS[HOLDER[name]],
            edgecolor="none",
        )
    )
    ax.text(
        x + width / 2, y + 0.069, text, ha="center", va="center", size=6.6, color="#ffffff", weight="bold"
    )


if __name__ == "__main__":
    draw()
