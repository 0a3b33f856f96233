"""Two requests, planned by the real scheduler: each step packed and padded, and the pages after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, diagram, label, save

from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.prefix.trie_cache import TrieCache
from tiny_llm.request import Request
from tiny_llm.scheduling.padded import PaddedArguments
from tiny_llm.scheduling.scheduler import Scheduler
from tiny_llm.scheduling.standing import Chunk

P, CHUNK, BUDGET, COMMON = 16, 128, 256, 200
COLOR = {"R1": "blue", "R2": "orange"}

TOKEN = 0.01  # inches
PAGE = 0.08
ROW, GAP, STEP = 0.2, 0.05, 0.62
LEFT, PADDED, PAGES = 0.62, 3.62, 5.44
EDGE = LEFT + BUDGET * TOKEN


@dataclass(frozen=True)
class Part:
    """What one request brings to a step."""

    name: str
    start: int
    count: int
    pages: list[tuple[str, bool]]  # of each page who writes or wrote it, and whether that is in this step


@dataclass(frozen=True)
class Moment:
    """One step."""

    parts: list[Part]
    width: int  # columns of the padded form

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)


def run(*prompts: Sequence[int]) -> list[Moment]:
    """The steps of some requests that want one token each."""
    scheduler = Scheduler(TrieCache(PageAllocator(64), P), 512, token_budget=BUDGET, chunk_size=CHUNK)
    for ids in prompts:
        scheduler.push(Request(ids, max_tokens=1))
    moments: list[Moment] = []
    writer: dict[int, str] = {}
    while scheduler.num_requests:
        plan = scheduler.plan()
        written = {page: _name(chunk) for chunk in plan for page in _written(chunk)}
        writer |= written
        parts = [
            Part(
                _name(chunk),
                chunk.running.sequence.length,
                chunk.count,
                [(writer[page], page in written) for page in chunk.running.sequence.pages],
            )
            for chunk in plan
        ]
        moments.append(Moment(parts, PaddedArguments.build(plan, P).tokens.shape[1]))
        for chunk in plan:
            chunk.running.sequence.advance(chunk.count)
        scheduler.commit()
        scheduler.remove([chunk.running.request for chunk in plan if chunk.running.due == 0])
    return moments


def _name(chunk: Chunk) -> str:
    return f"R{chunk.running.rank + 1}"


def _written(chunk: Chunk) -> list[int]:
    """The pages into which a chunk writes."""
    sequence = chunk.running.sequence
    return sequence.pages[sequence.length // P :]


def draw() -> None:
    fig, ax = diagram(height=4.55)
    top = 4.38
    label(ax, LEFT, top, "packed: one row", align="left", bold=True)
    label(ax, EDGE, top, f"budget {BUDGET}", align="right", size=8.5, color="red")
    label(ax, PADDED, top, "padded: a row each", align="left", bold=True)
    label(ax, PAGES, top, "pages of each", align="left", bold=True)
    middle = _scene(ax, "Nothing in common", run(range(250), range(1000, 1300)), top - 0.36)
    _scene(ax, f"The first {COMMON} tokens in common", run(range(250), _alike()), middle - 0.2)
    _legend(ax, 0.12)
    save(fig, "week_4_day_2")


def _alike() -> list[int]:
    """300 tokens, of which the first are those of R1."""
    return [*range(COMMON), *range(1000, 1300 - COMMON)]


def _scene(ax: Axes, title: str, moments: Sequence[Moment], top: float) -> float:
    """The steps of one run below their title; returns where they end."""
    label(ax, 0.12, top, title, align="left", size=9, color="muted")
    for number, moment in enumerate(moments):
        _step(ax, number, moment, top - 0.42 - STEP * number)
    end = top - 0.42 - STEP * len(moments) + 0.32
    ax.plot([EDGE + 0.015] * 2, [end - 0.04, top - 0.12], color=COLORS["red"], linewidth=1.4, zorder=3)
    return end - 0.1


def _step(ax: Axes, number: int, moment: Moment, y: float) -> None:
    """A line of the figure, with its middle at `y`: the row, the rectangle, and the pages."""
    label(ax, 0.12, y, f"step {number}", align="left", size=8.5, color="muted")
    x = LEFT
    for part in moment.parts:
        width = part.count * TOKEN
        _bar(ax, x, y - 0.16, width, 0.32, PALE[COLOR[part.name]], COLORS[COLOR[part.name]])
        first, last = part.start, part.start + part.count - 1
        wide = width > 1
        ax.text(
            x + width / 2,
            y,
            f"{part.name}\n{first} … {last}" if wide else f"{part.name}\n{first}…{last}",
            ha="center",
            va="center",
            size=7.3 if wide else 6.3,
            linespacing=1.2,
        )
        x += width
    if x < EDGE - 0.1:
        _bar(ax, x, y - 0.16, EDGE - x, 0.32, COLORS["paper"], COLORS["line"], dashed=True)
    label(ax, EDGE + 0.08, y, f"{moment.count}", align="left", size=8.5, bold=True)
    height = len(moment.parts) * ROW + (len(moment.parts) - 1) * GAP
    for row, part in enumerate(moment.parts):
        bottom = y + height / 2 - ROW - row * (ROW + GAP)
        _padded(ax, bottom, part, moment.width)
        _pages(ax, bottom, part)
    share = moment.count / (moment.width * len(moment.parts))
    words = f"{share:.1%}".replace(".0%", "%").replace("%", " %")
    label(ax, PADDED + moment.width * TOKEN + 0.07, y, words, align="left", size=8.5)


def _padded(ax: Axes, y: float, part: Part, columns: int) -> None:
    """A row of the rectangle: its tokens, and then padding."""
    width = part.count * TOKEN
    _bar(ax, PADDED, y, width, ROW, PALE[COLOR[part.name]], COLORS[COLOR[part.name]])
    label(ax, PADDED + width / 2, y + ROW / 2, f"{part.count}", size=7.5)
    if columns > part.count:
        rest = (columns - part.count) * TOKEN
        _bar(ax, PADDED + width, y, rest, ROW, PALE["red"], COLORS["red"], hatch="//////")


def _pages(ax: Axes, y: float, part: Part) -> None:
    """The pages of a request in order, each in the color of the request that computed it."""
    for number, (name, now) in enumerate(part.pages):
        color = COLOR[name]
        face = COLORS[color] if now else PALE[color]
        _bar(ax, PAGES + number * PAGE, y + 0.02, PAGE - 0.018, ROW - 0.04, face, COLORS[color])
    x = PAGES + len(part.pages) * PAGE + 0.03
    label(ax, x, y + ROW / 2, f"{len(part.pages)}", align="left", size=7.5)


def _legend(ax: Axes, y: float) -> None:
    """What the fills mean."""
    _bar(ax, LEFT, y - 0.07, 0.2, 0.14, PALE["red"], COLORS["red"], hatch="//////")
    label(ax, LEFT + 0.27, y, "padding", align="left", size=8.5)
    x = PADDED - 1.7
    for color in ("blue", "orange"):
        _bar(ax, x, y - 0.08, PAGE - 0.018, 0.16, COLORS[color], COLORS[color])
        x += PAGE
    label(ax, x + 0.05, y, "written in this step by R1, by R2", align="left", size=8.5)
    x += 2.35
    for color in ("blue", "orange"):
        _bar(ax, x, y - 0.08, PAGE - 0.018, 0.16, PALE[color], COLORS[color])
        x += PAGE
    label(ax, x + 0.05, y, "written in an earlier step", align="left", size=8.5)


def _bar(
    ax: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    face: str,
    edge: str,
    *,
    hatch: str | None = None,
    dashed: bool = False,
) -> None:
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=face,
            edgecolor=edge,
            linewidth=0.7,
            hatch=hatch,
            linestyle=(0, (3, 2)) if dashed else "-",
        )
    )


if __name__ == "__main__":
    draw()
