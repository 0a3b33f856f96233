"""What the first question of the chapter's example attends to: its past, place by place, as the engine sorts it."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, diagram, label, save
from week_4_day_5 import P, Page, Story, look

from tiny_llm.documents.past import Past

CELL, HEIGHT, LEFT, COLUMN, ROW = 0.4, 0.29, 0.15, 1.77, 0.66
FACE = {"system": "blue", "full": "green", "loose": "yellow", "own": "purple"}
NAME = {
    "system": "system prompt",
    "full": "full pages",
    "loose": "loose tokens",
    "own": "its own page",
}


def draw() -> None:
    story = Story()
    story.step("A")
    ((_, join),) = story.joins
    pages = look(story)
    sorted_places = sort_places(Past.of(join.question, P), join.question.sequence.pages)
    fig, ax = diagram(height=2.05)
    for number, page in pages.items():
        row, column = divmod(number - 1, 4)
        _page(ax, page, LEFT + column * COLUMN, 1.45 - row * ROW, sorted_places)
    _legend(ax)
    save(fig, "week_4_day_5_past")


def sort_places(past: Past, own: list[int]) -> dict[int, str]:
    """Which of the sets each place of the pool is in; a place that no set has is missing."""
    sets: dict[int, str] = {}
    for i in range(past.system_len):
        sets[past.system[i // P] * P + i % P] = "system"
    sets |= {page * P + i: "full" for page in past.pages for i in range(P)}
    sets |= dict.fromkeys(past.loose, "loose")
    return sets | {page * P + i: "own" for page in own for i in range(P)}


def _page(ax: Axes, page: Page, x: float, y: float, sets: dict[int, str]) -> None:
    """The four places of a page, each in the color of its set."""
    for offset in range(P):
        place, word = page.number * P + offset, page.words[offset : offset + 1]
        seen = sets.get(place) if word else None
        face = PALE[FACE[seen]] if seen else COLORS["paper"]
        cell = (x + offset * CELL, y)
        ax.add_patch(Rectangle(cell, CELL, HEIGHT, facecolor=face, edgecolor=COLORS["line"], linewidth=0.7))
        if word:
            middle = cell[0] + CELL / 2
            label(ax, middle, y + HEIGHT / 2, word[0], size=8.5, color="ink" if seen else "line")
            label(ax, middle, y - 0.09, str(place), size=6.8, color="muted")
    ax.add_patch(
        Rectangle((x, y), P * CELL, HEIGHT, facecolor="none", edgecolor=COLORS["muted"], linewidth=1.1)
    )
    label(ax, x, y + HEIGHT + 0.1, f"page {page.number}", align="left", size=7.8, color="muted")


def _legend(ax: Axes) -> None:
    for place, (each, name) in enumerate(NAME.items()):
        x = LEFT + 1.36 * place
        ax.add_patch(
            Rectangle(
                (x, 0.13), 0.17, 0.17, facecolor=PALE[FACE[each]], edgecolor=COLORS["line"], linewidth=0.7
            )
        )
        label(ax, x + 0.25, 0.21, name, align="left", size=8)
    x = LEFT + 1.36 * len(NAME)
    label(ax, x, 0.21, "s4", align="left", size=8.5, color="line")
    label(ax, x + 0.25, 0.21, "a copy, not read", align="left", size=8)


if __name__ == "__main__":
    draw()
