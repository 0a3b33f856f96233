"""The seam between the tracks: what is written once, and what each framework has of its own."""

from matplotlib.axes import Axes
from style import COLORS, arrow, box, diagram, label, save

ONCE = ("model", "kv_cache", "generate", "batch", "allocator", "scheduler")
OWN = (
    "attention",
    "layers",
    "positional_encoding",
    "sampler",
    "quantize",
    "flash_attention",
    "paged/pool",
    "paged/metadata",
    "paged/attention",
    "weights",
)
SEAM = 2.87
LEFT, WIDTH = 0.3, 6.6


def draw() -> None:
    fig, ax = diagram(height=4.62)
    label(ax, LEFT, 4.4, "written once, in src/tiny_llm/", align="left", bold=True)
    for index, name in enumerate(ONCE):
        box(ax, LEFT + index * 1.12, 3.82, 1.0, 0.36, name, color="green", size=8.5, mono=name != "…")
    label(ax, LEFT, 3.47, "lists, lengths, slots; arrays only as they come", align="left", size=8.5)
    ax.plot([LEFT, LEFT + WIDTH], [SEAM, SEAM], color=COLORS["red"], linewidth=1.4, linestyle=(0, (4, 3)))
    label(ax, LEFT + WIDTH / 2, SEAM + 0.2, "the seam between the tracks", color="red", bold=True)
    for x in (1.85, 5.35):
        arrow(ax, (x, 3.32), (x, 2.54))
    _own(ax, LEFT, "src/tiny_llm/", "with torch", "blue")
    _own(ax, LEFT + 3.5, "src/tiny_llm_mlx/", "with --backend mlx", "orange")
    save(fig, "setup_tracks")


def _own(ax: Axes, x: float, folder: str, when: str, color: str) -> None:
    """One framework's modules: `arrays` at the seam, the others below it."""
    label(ax, x, 0.17, folder, align="left", bold=True, size=8.5)
    label(ax, x + 3.1, 0.17, when, align="right", size=8.5, color="muted")
    box(ax, x, 2.18, 3.1, 0.34, "arrays: integers, empty, zeros, split, …", color="red", size=8)
    for index, name in enumerate(OWN):
        column, row = index % 2, index // 2
        box(ax, x + column * 1.6, 1.78 - row * 0.36, 1.5, 0.3, name, color=color, size=7.5, mono=True)


if __name__ == "__main__":
    draw()
