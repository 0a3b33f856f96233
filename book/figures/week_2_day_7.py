"""The slots of a batch, step by step, under static and under continuous batching: noted while the real code runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, new_figure, save

from tiny_llm.batch import Prefill, batch_generate
from tiny_llm.request import Request
from tiny_llm.static_batch import generate_static

SLOTS, CHUNK = 3, 4
NAMES = "ABCDEFGHI"
PROMPTS = (3, 9, 2, 14, 4, 1, 6, 10, 3)
OUTPUTS = (19, 6, 4, 12, 3, 16, 5, 4, 8)
END = len(NAMES)


class CountingModel:
    """Does no arithmetic. Request i has a prompt of tokens i, goes on with i, and ends when its output is due to end.

    `runs` holds, for each run, the requests that it was run on and how many tokens of each.
    """

    def __init__(self) -> None:
        self.config = SimpleNamespace(max_positions=64, num_layers=1)
        self.embedding = SimpleNamespace(weight=torch.zeros(10, 1))
        self.runs: list[tuple[list[int | None], int]] = []

    def hidden(self, tokens: torch.Tensor, positions: slice | list[slice], caches: Any) -> torch.Tensor:
        rows = positions if isinstance(positions, list) else [positions]
        who = [
            None if row.stop == 1 and isinstance(positions, list) else int(tokens[i, 0])
            for i, row in enumerate(rows)
        ]
        self.runs.append((who, tokens.shape[1]))
        last = torch.tensor([[row.stop - 1] for row in rows])
        return torch.stack([tokens[:, -1:], last], dim=-1)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        request, position = hidden.unbind(dim=-1)
        prompt, output = torch.tensor(PROMPTS), torch.tensor(OUTPUTS)
        ends = position == prompt[request] + output[request] - 2
        return torch.nn.functional.one_hot(torch.where(ends, END, request), END + 1)


@dataclass
class Timeline:
    """(slot, step, request) for each decode, (step, request) for each chunk and each wait for a slot."""

    steps: int = 0
    decodes: list[tuple[int, int, int]] = field(default_factory=list)
    prefills: list[tuple[int, int]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """How often the model ran, and the share of rows in its decodes that belonged to a request."""
        decodes = len({step for _, step, _ in self.decodes})
        rows = len(self.decodes) / (SLOTS * decodes)
        return f"{self.steps} steps, {len(self.prefills)} chunks, {decodes} decodes with {rows:.0%} of the slots busy"


def static() -> Timeline:
    """Groups of as many requests as there are slots. A whole prompt takes as many steps as it has chunks."""
    line = Timeline()
    for start in range(0, len(PROMPTS), SLOTS):
        model: Any = CountingModel()
        group = range(start, start + SLOTS)
        generate_static(model, [[i] * PROMPTS[i] for i in group], 64, (END,))
        for who, tokens in model.runs:
            if len(who) == 1:
                chunks = math.ceil(tokens / CHUNK)
                line.prefills += [(line.steps + n, who[0]) for n in range(chunks)]
                line.steps += chunks
            else:
                line.decodes += [(slot, line.steps, r) for slot, r in enumerate(who) if r is not None]
                line.steps += 1
    return line


def continuous() -> Timeline:
    """One call for all the requests."""
    line, model = Timeline(), CountingModel()
    requests = [Request([i] * count, 64, (END,)) for i, count in enumerate(PROMPTS)]
    number = {request: i for i, request in enumerate(requests)}
    computed = dict.fromkeys(requests, 0)

    def observe(slots: Sequence[Request | None], prefill: Prefill | None) -> None:
        line.decodes += [(slot, line.steps, number[r]) for slot, r in enumerate(slots) if r is not None]
        if prefill is not None:
            turn = line.prefills if prefill.computed > computed[prefill.request] else line.waits
            turn.append((line.steps, number[prefill.request]))
            computed[prefill.request] = prefill.computed
        line.steps += 1

    batch_generate(model, requests, SLOTS, CHUNK, observe)  # type: ignore[arg-type]
    assert [len(request.output) for request in requests] == list(OUTPUTS)
    return line


def draw() -> None:
    lines = {"static batching": static(), "continuous batching": continuous()}
    fig, axes = new_figure(height=4.1, rows=2, sharex=True)
    for ax, (name, line) in zip(axes, lines.items(), strict=True):
        _timeline(ax, line)
        ax.set_title(f"{name}: {line.summary}")
        ax.set_xlim(0, max(line.steps for line in lines.values()))
    axes[1].set_xlabel("step")
    fig.legend(handles=_legend(), loc="outside lower center", ncols=4, handlelength=1.4, columnspacing=1.6)
    save(fig, "week_2_day_7")


STYLES: dict[str, dict[str, Any]] = {
    "decode": {"facecolor": PALE["blue"], "edgecolor": COLORS["blue"]},
    "prefill": {"facecolor": PALE["orange"], "edgecolor": COLORS["orange"], "hatch": "////"},
    "wait": {"facecolor": COLORS["paper"], "edgecolor": COLORS["orange"], "linestyle": (0, (2, 1.5))},
    "idle": {"facecolor": COLORS["paper"], "edgecolor": COLORS["line"]},
}


def _timeline(ax: Axes, line: Timeline) -> None:
    """A lane for the prompts, then one per slot; a cell per step, the request's letter on each stretch of cells."""
    for slot in range(SLOTS):
        for step in range(line.steps):
            _cell(ax, slot + 1, step, "idle")
    for slot, step, _ in line.decodes:
        _cell(ax, slot + 1, step, "decode")
    for step, _ in line.prefills:
        _cell(ax, 0, step, "prefill")
    for step, _ in line.waits:
        _cell(ax, 0, step, "wait")
    for slot in range(SLOTS):
        _letters(ax, slot + 1, [(step, r) for place, step, r in line.decodes if place == slot])
    _letters(ax, 0, sorted(line.prefills + line.waits))
    ax.set_ylim(SLOTS + 1, -0.05)
    ax.set_yticks([i + 0.5 for i in range(SLOTS + 1)], ["prompts", *(f"slot {i}" for i in range(SLOTS))])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def _cell(ax: Axes, lane: int, step: int, kind: str) -> None:
    ax.add_patch(Rectangle((step + 0.05, lane + 0.08), 0.9, 0.84, linewidth=0.6, **STYLES[kind]))


def _letters(ax: Axes, lane: int, cells: Sequence[tuple[int, int]]) -> None:
    """The letter of a request in the middle of its stretch of cells."""
    for request in sorted({r for _, r in cells}):
        steps = [step for step, r in cells if r == request]
        ax.plot([min(steps)] * 2, [lane, lane + 1], color=COLORS["ink"], linewidth=1.4, solid_capstyle="butt")
        ax.text(
            (min(steps) + max(steps) + 1) / 2,
            lane + 0.5,
            NAMES[request],
            ha="center",
            va="center",
            size=8.5,
            weight="bold",
            bbox={"boxstyle": "round,pad=0.06", "facecolor": COLORS["paper"], "edgecolor": "none"},
        )


def _legend() -> list[Rectangle]:
    words = {
        "prefill": f"a chunk (≤ {CHUNK} tokens)",
        "wait": "its last chunk waits for a slot",
        "decode": "decodes one token",
        "idle": "idle",
    }
    return [
        Rectangle((0, 0), 1, 1, linewidth=0.6, label=text, **STYLES[kind]) for kind, text in words.items()
    ]


if __name__ == "__main__":
    draw()
