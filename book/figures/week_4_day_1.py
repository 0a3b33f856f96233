"""The tree of pages of the chapter's example at three moments: run on the real cache."""

from __future__ import annotations

from dataclasses import dataclass, field

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch, Rectangle
from style import COLORS, PALE, diagram, label, save

from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.prefix.trie_cache import Node, TrieCache
from tiny_llm.tokenizer import load_tokenizer

P, PAGES = 4, 5
TEXTS = {
    "A": "Once there was a cat that sat on a mat",
    "B": "Once there was a cat that ran up a tree",
    "C": "Once there was a cat that sat on",
    "D": "Once there was a dog that saw a cat that sat on a mat",
}
COLOR = {"A": "blue", "B": "orange", "C": "green", "D": "purple", "tree": "ink"}
ORDINALS = ("1st", "2nd", "3rd")

CELL, HEIGHT, GAP, LEFT = 0.375, 0.27, 0.17, 0.5
ROW, PANEL = 0.64, 1.72


@dataclass(frozen=True)
class Page:
    """A page at one moment."""

    number: int
    row: int
    depth: int
    words: list[str]
    holders: list[str]  # "tree" is one of them if the page is in the tree
    turn: int | None  # in which turn it would be evicted


@dataclass
class Moment:
    title: str
    free: list[int]
    pages: list[Page] = field(default_factory=list)


class Story:
    """The requests of the chapter on one cache."""

    def __init__(self, pages: int) -> None:
        self.tokenizer = load_tokenizer()
        self.cache = TrieCache(PageAllocator(pages + 1), P)
        self.running: dict[str, PagedSequence] = {}
        self.tokens = {name: self.tokenizer.encode(text) for name, text in TEXTS.items()}

    def step(self, *names: str) -> None:
        """These requests come, and all their tokens are computed in one step."""
        for name in names:
            sequence, ids = PagedSequence(self.cache.allocator, P), self.tokens[name]
            self.cache.match(sequence, ids)
            self.cache.acquire(sequence, len(ids) - sequence.length)
            self.cache.publish(sequence, ids, len(ids))
            self.running[name] = sequence
        for name in names:
            self.running[name].advance(len(self.tokens[name]) - self.running[name].length)
        self.cache.commit()
        self.cache.check(self.running.values())

    def end(self, *names: str) -> None:
        for name in names:
            self.cache.release(self.running.pop(name))
        self.cache.check(self.running.values())

    def now(self, title: str) -> Moment:
        """The tree from left to right, a row per branch, and behind each path the pages that are not in the tree."""
        moment = Moment(title, sorted(self.cache.allocator.free_pages))
        self._place(moment, self.cache.root, 0)
        return moment

    def _place(self, moment: Moment, node: Node, row: int) -> int:
        """Add what is behind a node, and return how many rows it takes."""
        rows = 0
        for child in sorted(node.children.values(), key=lambda each: each.page):
            turn = list(self.cache.unheld).index(child) if child in self.cache.unheld else None
            names = ["tree", *(name for name, each in self.running.items() if child.page in each.pages)]
            page = Page(child.page, row + rows, node.depth, self._words(child.key), names, turn)
            moment.pages.append(page)
            rows += self._place(moment, child, row + rows)
        for name, sequence in self.running.items():
            if self.cache.tip(sequence) is node:
                for depth in range(node.depth, len(sequence.pages)):
                    words = self._words(self.tokens[name][depth * P : (depth + 1) * P])
                    moment.pages.append(Page(sequence.pages[depth], row + rows, depth, words, [name], None))
        return max(rows, 1)

    def _words(self, ids: tuple[int, ...] | list[int]) -> list[str]:
        return [self.tokenizer.decode([each]).strip() for each in ids]


def tell() -> list[Moment]:
    """The three moments of the chapter's table."""
    story = Story(PAGES)
    story.step("A", "B")
    moments = [story.now("A and B run")]
    story.end("A")
    story.step("C")
    story.end("B", "C")
    moments.append(story.now("A, B and C have ended"))
    story.step("D")
    moments.append(story.now("D runs: page 2 was evicted, and is D's now"))
    return moments


def draw() -> None:
    moments = tell()
    fig, ax = diagram(height=PANEL * len(moments))
    for number, moment in enumerate(moments):
        top = PANEL * (len(moments) - number) - 0.06
        _panel(ax, moment, top)
        if number:
            ax.plot([0.15, 7.05], [top + 0.13] * 2, color=COLORS["line"], linewidth=0.8)
    save(fig, "week_4_day_1")


def _panel(ax: Axes, moment: Moment, top: float) -> None:
    """One moment: its title, and the tree below it."""
    label(ax, 0.15, top - 0.06, moment.title, align="left", bold=True)
    free = f"free: {', '.join(map(str, moment.free)) or 'none'}"
    label(ax, 7.05, top - 0.06, free, align="right", size=8.5, color="muted")
    for page in moment.pages:
        _page(ax, page, top)
    y = _middle(top, 0)
    ax.plot([0.26], [y], marker="o", markersize=7, color=COLORS["ink"])
    for page in moment.pages:
        if page.depth == 0:
            _edge(ax, 0.26, y, page, top)
        else:
            parent = max(
                (other for other in moment.pages if other.depth == page.depth - 1 and other.row <= page.row),
                key=lambda other: other.row,
            )
            _edge(ax, _x(parent) + P * CELL, _middle(top, parent.row), page, top)


def _x(page: Page) -> float:
    return LEFT + page.depth * (P * CELL + GAP)


def _middle(top: float, row: int) -> float:
    return top - 0.61 - row * ROW


def _edge(ax: Axes, x: float, y: float, page: Page, top: float) -> None:
    """A line to a page from its parent's right edge; dashed to a page that isn't in the tree."""
    end, bottom = _x(page), _middle(top, page.row)
    bend = end - GAP / 2
    style = "-" if "tree" in page.holders else (0, (2, 1.6))
    ax.plot(
        [x, bend, bend, end],
        [y, y, bottom, bottom],
        color=COLORS["muted"],
        linewidth=1.2,
        linestyle=style,
        zorder=0.5,
    )


def _page(ax: Axes, page: Page, top: float) -> None:
    """The words of a page, and above them its number, its holders, and its turn to be evicted."""
    x, y = _x(page), _middle(top, page.row) - HEIGHT / 2
    held = [name for name in page.holders if name != "tree"]
    face = PALE[COLOR[held[0]]] if len(held) == 1 else PALE["yellow"] if held else PALE["muted"]
    for offset in range(P):
        known = offset < len(page.words)
        _cell(ax, x + offset * CELL, y, face if known else COLORS["paper"])
        if known:
            ax.text(x + (offset + 0.5) * CELL, y + 0.095, page.words[offset], ha="center", size=7.6)
    ax.add_patch(
        Rectangle(
            (x, y),
            P * CELL,
            HEIGHT,
            facecolor="none",
            edgecolor=COLORS["ink" if "tree" in page.holders else "muted"],
            linewidth=1.3,
            linestyle="-" if "tree" in page.holders else (0, (3, 2)),
        )
    )
    label(ax, x + 0.01, y + HEIGHT + 0.11, f"page {page.number}", align="left", size=7.8, color="muted")
    right = x + P * CELL
    for name in reversed(page.holders):
        width = 0.34 if name == "tree" else 0.2
        _chip(ax, right - width, y + HEIGHT + 0.035, width, name)
        right -= width + 0.04
    if page.turn is not None:
        words = f"{ORDINALS[page.turn]} to be evicted"
        label(ax, x + P * CELL / 2, y - 0.09, words, size=7.8, color="red")


def _cell(ax: Axes, x: float, y: float, face: str) -> None:
    ax.add_patch(
        Rectangle((x, y), CELL, HEIGHT, facecolor=face, edgecolor=COLORS["line"], linewidth=0.7, zorder=0.9)
    )


def _chip(ax: Axes, x: float, y: float, width: float, name: str) -> None:
    """One reference to a page."""
    ax.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            0.155,
            boxstyle="round,pad=0,rounding_size=0.05",
            facecolor=COLORS[COLOR[name]],
            edgecolor="none",
        )
    )
    ax.text(
        x + width / 2, y + 0.074, name, ha="center", va="center", size=7.2, color="#ffffff", weight="bold"
    )


if __name__ == "__main__":
    draw()
