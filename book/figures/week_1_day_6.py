"""What is computed again when every token runs the whole sequence: counted while the real code generates."""

from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, new_figure, save

from tiny_llm.generate import generate_recompute

SMALL_PROMPT, SMALL_OUTPUT = 5, 6
PROMPT, OUTPUT = 37, 128


class CountingModel:
    """Does no arithmetic; notes how many rows each call of `hidden` has."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(max_positions=8192)
        self.embedding = SimpleNamespace(weight=torch.zeros(10, 1))
        self.rows: list[int] = []

    def hidden(self, tokens: torch.Tensor, positions: slice) -> torch.Tensor:
        self.rows.append(tokens.shape[1])
        return torch.zeros(1, tokens.shape[1], 1)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.zeros(1)


def count_rows(prompt: int, output: int) -> list[int]:
    """How many rows each of the `output` calls runs through the blocks."""
    model: Any = CountingModel()
    list(generate_recompute(model, [0] * prompt, output))
    return model.rows


def draw() -> None:
    fig, (left, right) = new_figure(height=2.9, cols=2, width_ratios=(1.05, 1))
    _calls(left)
    _totals(right)
    save(fig, "week_1_day_6")


def _calls(ax: Axes) -> None:
    """One line a call, one cell a row of the model; what an earlier call computed is hatched."""
    known = 0
    for call, rows in enumerate(count_rows(SMALL_PROMPT, SMALL_OUTPUT)):
        for place in range(rows):
            again = place < known
            color = "orange" if again else "blue"
            ax.add_patch(
                Rectangle(
                    (place, call),
                    1,
                    1,
                    facecolor=PALE[color],
                    edgecolor=COLORS[color],
                    linewidth=0.8,
                    hatch="///" if again else None,
                )
            )
        known = rows
    ax.set(
        xlim=(0, SMALL_PROMPT + SMALL_OUTPUT),
        ylim=(SMALL_OUTPUT, 0),
        aspect="equal",
        xlabel="position of the token",
    )
    ax.set_ylabel("call of the model")
    places, calls = range(SMALL_PROMPT + SMALL_OUTPUT - 1), range(SMALL_OUTPUT)
    ax.set_xticks([i + 0.5 for i in places], [str(i) for i in places])
    ax.set_yticks([i + 0.5 for i in calls], [str(i + 1) for i in calls])
    ax.tick_params(length=0)
    handles = [
        Rectangle((0, 0), 1, 1, facecolor=PALE["blue"], edgecolor=COLORS["blue"]),
        Rectangle((0, 0), 1, 1, facecolor=PALE["orange"], edgecolor=COLORS["orange"], hatch="///"),
    ]
    ax.legend(handles, ["the first time", "again"], loc="upper right", handlelength=1.2)


def _totals(ax: Axes) -> None:
    rows = count_rows(PROMPT, OUTPUT)
    tokens = range(1, OUTPUT + 1)
    ax.plot(tokens, torch.tensor(rows).cumsum(0).tolist(), color=COLORS["orange"])
    ax.plot(tokens, rows, color=COLORS["blue"], linestyle=(0, (4, 2)))
    total = sum(rows)
    ax.annotate(
        f"all over again: {total:,}", (OUTPUT, total), (-6, 0), textcoords="offset points", ha="right"
    )
    ax.annotate(
        f"each row once: {rows[-1]}", (OUTPUT, rows[-1]), (0, 7), textcoords="offset points", ha="right"
    )
    ax.set(
        xlabel=f"tokens generated after a prompt of {PROMPT}",
        ylabel="rows run through the blocks",
        xlim=(0, 132),
    )
    ax.set_ylim(0, total * 1.08)
    ax.yaxis.set_major_formatter("{x:,.0f}")


if __name__ == "__main__":
    draw()
