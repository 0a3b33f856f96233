"""A pool with two requests in it, the two views of its bytes, what padding and pages waste: from the real code."""

from types import SimpleNamespace

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, arrow, diagram, label, new_figure, save

from tiny_llm.batch import batch_generate
from tiny_llm.paged.allocator import NULL_PAGE, PageAllocator
from tiny_llm.paged.places import pages_for
from tiny_llm.paged.pool import KvPool
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.request import Request

P, N = 4, 8
CELL = 0.34
HATCHES = {"blue": "", "orange": "///", "muted": "xxx"}
# Tokens of the sixteen prompts of batch-main and of what the default model answers, at most 48.
LENGTHS = [(37, 8), (546, 29), (37, 48), (41, 37), (313, 48), (37, 32), (56, 18), (573, 48)]
LENGTHS += [(36, 22), (38, 48), (213, 48), (79, 48), (36, 48), (324, 48), (43, 48), (108, 48)]
PAGE = 16


def draw() -> None:
    _pool()
    _views()
    _waste()


def example() -> dict[str, PagedSequence]:
    """The chapter's example: A of 6 tokens, B of 3, then A grows to 9."""
    allocator = PageAllocator(N)
    sequences = {name: PagedSequence(allocator, P) for name in "AB"}
    for name, count in (("A", 6), ("B", 3), ("A", 3)):
        sequences[name].reserve(count)
        sequences[name].advance(count)
    return sequences


def _pool() -> None:
    """The pages of each request on the left, the pool on the right, a line from each entry to its page."""
    fig, ax = diagram(height=3.35)
    left, top = 4.35, 2.9
    owners = {}
    for name, sequence in example().items():
        for position, place in enumerate(sequence.places(0, sequence.length)):
            owners[place] = (name, position)
    for page in range(N):
        y = top - page * (CELL + 0.05)
        label(ax, left - 0.12, y + CELL / 2, f"page {page}", align="right", size=8.5, color="muted")
        for offset in range(P):
            _token(ax, left + offset * 1.28 * CELL, y, page, owners.get(page * P + offset))
        held = [name for name, sequence in example().items() if page in sequence.pages]
        words = "null page" if page == NULL_PAGE else f"{held[0]}'s" if held else "free"
        label(ax, left + P * 1.28 * CELL + 0.12, y + CELL / 2, words, align="left", size=8.5)
    y = top
    for (name, sequence), color in zip(example().items(), ("blue", "orange"), strict=True):
        label(ax, 0.2, y + CELL / 2, f"request {name}", align="left", bold=True)
        label(ax, 0.2, y - 0.1, f"length {sequence.length}", align="left", size=8.5)
        label(ax, 0.2, y - 0.34, f"pages {sequence.pages}", align="left", mono=True, size=8.5)
        for entry, page in enumerate(sequence.pages):
            middle = y - entry * CELL + CELL / 2
            _cell(ax, 2.25, y - entry * CELL, 0.46, CELL, color, str(page))
            arrow(ax, (2.75, middle), (left - 0.76, top - page * (CELL + 0.05) + CELL / 2), color=color)
        y -= 4.5 * CELL
    save(fig, "week_3_day_1")


def _token(ax: Axes, x: float, y: float, page: int, owner: tuple[str, int] | None) -> None:
    """One place: the request and the number of its token."""
    width = 1.28 * CELL
    if owner is not None:
        _cell(ax, x, y, width, CELL, "blue" if owner[0] == "A" else "orange", f"{owner[0]}{owner[1]}")
    else:
        _cell(ax, x, y, width, CELL, "muted" if page == NULL_PAGE else "", "")


def _cell(ax: Axes, x: float, y: float, width: float, height: float, color: str, text: str) -> None:
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=PALE[color] if color else COLORS["paper"],
            edgecolor=COLORS[color or "line"],
            linewidth=0.9,
            linestyle="-" if color else (0, (2, 2)),
            hatch=HATCHES.get(color, "") if not text else "",
        )
    )
    if text:
        label(ax, x + width / 2, y + height / 2, text, size=8.5)


def _views() -> None:
    """The same places as pages and as one run: index 5 is a page in the one and a token in the other."""
    config = SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1)
    pool = KvPool(config, N, P)  # type: ignore[arg-type]  # the three sizes are all that it looks at
    flat = pool.keys[0].flatten(0, 1)
    flat[:, 0, 0] = torch.arange(N * P)
    fig, ax = diagram(height=2.6)
    cell, gap = 0.203, 0.04
    label(ax, 0.2, 2.35, "keys[layer]   [N, P, Hkv, D]", align="left", mono=True, size=8.5)
    label(ax, 0.2, 1.0, "keys[layer].flatten(0, 1)   [N·P, Hkv, D]", align="left", mono=True, size=8.5)
    chosen = pool.keys[0][5].flatten().tolist(), flat[5].flatten().tolist()
    for page in range(N):
        for offset in range(P):
            place = int(pool.keys[0, page, offset, 0, 0])
            x = 0.2 + page * (P * cell + gap)
            _place(ax, x + offset * cell, 1.75, cell, place, place in chosen[0])
            _place(ax, 0.2 + place * cell, 0.4, cell, place, place in chosen[1])
        label(ax, x + P * cell / 2, 2.11, str(page), size=8.5, color="muted")
    x = 0.2 + 5 * (P * cell + gap) + P * cell / 2
    arrow(ax, (x, 1.42), (x, 1.72), color="orange")
    label(ax, x, 1.32, "keys[layer][5]: page 5, 4 tokens", size=8.5)
    x = 0.2 + 5.5 * cell
    arrow(ax, (x, 0.2), (x, 0.38), color="blue")
    label(
        ax,
        x + 0.15,
        0.16,
        "flatten(0, 1)[5]: place 5, the token at offset 1 of page 1",
        align="left",
        size=8.5,
    )
    save(fig, "week_3_day_1_views")


def _place(ax: Axes, x: float, y: float, size: float, place: int, chosen: bool) -> None:
    color = ("orange" if y > 1 else "blue") if chosen else "muted"
    face = PALE[color] if chosen else COLORS["paper"]
    edge = COLORS[color if chosen else "line"]
    ax.add_patch(
        Rectangle((x, y), size, 0.25, facecolor=face, edgecolor=edge, linewidth=1.2 if chosen else 0.7)
    )
    label(ax, x + size / 2, y + 0.125, str(place), size=8, color="ink" if chosen else "muted", bold=chosen)


def measure() -> list[tuple[int, int, int]]:
    """For each decode of the sixteen requests in five slots: tokens held, places in pages, in the dense batch."""
    decodes = []

    def hidden(tokens, positions, caches):
        new = torch.zeros(*tokens.shape)[:, None, :, None]
        keys, _, _ = caches[0].update_and_fetch(new, new)
        if isinstance(positions, list):  # a decode
            lengths = [cache.length for cache in caches[0].slots if cache is not None]
            pages = sum(PAGE * pages_for(length, PAGE) for length in lengths)
            decodes.append((sum(lengths), pages, keys.shape[0] * keys.shape[2]))
        return torch.zeros(*tokens.shape, 1)

    model = SimpleNamespace(
        config=SimpleNamespace(num_layers=1, max_positions=8192),
        embedding=SimpleNamespace(weight=torch.zeros(10, 1)),
        hidden=hidden,
        logits=lambda states: torch.zeros(*states.shape[:-1], 2),
    )
    batch_generate(model, [Request([1] * prompt, output) for prompt, output in LENGTHS])  # type: ignore[arg-type]
    return decodes


def _waste() -> None:
    """Places for tokens, decode by decode."""
    fig, ax = new_figure(height=2.5)
    tokens, pages, dense = zip(*measure(), strict=True)
    steps = range(1, len(tokens) + 1)
    ax.fill_between(steps, tokens, dense, color=PALE["orange"], step="mid", linewidth=0)
    ax.step(steps, dense, where="mid", color=COLORS["orange"], label="the dense batch")
    ax.step(steps, pages, where="mid", color=COLORS["blue"], label="pages of 16")
    ax.step(
        steps, tokens, where="mid", color=COLORS["ink"], linewidth=1, linestyle=(0, (2, 1)), label="tokens"
    )
    ax.set(xlabel="decode", ylabel="places for tokens", xlim=(1, len(tokens)), ylim=(0, None))
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.legend(loc="upper right", bbox_to_anchor=(0.86, 1.0))
    save(fig, "week_3_day_1_waste")


if __name__ == "__main__":
    draw()
