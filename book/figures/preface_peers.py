"""The engine of Day 4.7 beside engines that people use, as `pdm run bench peers` measured them."""

from __future__ import annotations

from style import COLORS, FULL_WIDTH, new_figure, save

ENGINES = (
    "transformers, bfloat16",
    "llama.cpp, 4-bit",
    "OpenVINO GenAI, bfloat16",
    "vLLM on CPU, bfloat16",
    "the course's, last day",
)
SPEEDS = {
    "one request": (23, 76, 55, 48, 195),
    "32 chats": (95, 92, 249, 238, 566),
    "mixed lengths": (15, 21, 63, 65, 134),
    "shared prefix": (28, 15, 44, 202, 325),
    "long prompt": (472, 240, 529, 584, 1088),
}
"""Tokens per second, medians of three rounds in one run: Intel, two cores, AVX-512 with VNNI, without AMX."""


def draw() -> None:
    """A column for each workload, with a scale of its own."""
    fig, columns = new_figure(FULL_WIDTH, 1.9, cols=len(SPEEDS), sharey=True)
    for ax, (title, speeds) in zip(columns, SPEEDS.items(), strict=True):
        colors = [COLORS["blue"]] * (len(ENGINES) - 1) + [COLORS["orange"]]
        ax.barh(range(len(ENGINES)), speeds, color=colors, height=0.7)
        for place, speed in enumerate(speeds):
            ax.text(speed, place, f" {speed:,}", va="center", size=8.5)
        ax.set_title(title, size=9)
        ax.set_xlim(0, max(speeds) * 1.75)
        ax.set_xticks([])
        ax.spines.bottom.set_visible(False)
        ax.tick_params(axis="y", length=0, labelcolor=COLORS["ink"])
    columns[0].set_yticks(range(len(ENGINES)), ENGINES)
    columns[0].invert_yaxis()
    fig.supxlabel("tokens per second on two cores, median of three rounds", size=8.5, color=COLORS["muted"])
    save(fig, "preface_peers")


if __name__ == "__main__":
    draw()
