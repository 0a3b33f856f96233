"""The same three filters on a sure and on an unsure distribution of the default model."""

from collections.abc import Callable
from typing import Any

import torch
from matplotlib.axes import Axes
from style import COLORS, PALE, new_figure, save

from tiny_llm.model import Transformer
from tiny_llm.sampler import keep_min_p, keep_top_k, keep_top_p
from tiny_llm.tokenizer import Tokenizer, load_tokenizer
from tiny_llm.weights import load_weights

PROMPTS = ("The capital of France is", "Once upon a time, there was a")
FILTERS: tuple[tuple[str, Callable[..., torch.Tensor], float, str, Any], ...] = (
    ("top-k 10", keep_top_k, 10, "blue", "-"),
    ("top-p 0.9", keep_top_p, 0.9, "orange", (0, (5, 2))),
    ("min-p 0.1", keep_min_p, 0.1, "green", (0, (1.5, 1.5))),
)
SHOWN = 26


def draw() -> None:
    weights = load_weights()
    model, tokenizer = Transformer(weights.config, weights), load_tokenizer()
    fig, axes = new_figure(height=3.3, cols=2, sharey=True)
    for ax, prompt in zip(axes, PROMPTS, strict=True):
        ids = tokenizer.encode(prompt)
        logits = model.logits(model.hidden(torch.tensor([ids]), slice(0, len(ids)))[0, -1])
        _distribution(ax, logits, tokenizer)
        ax.set_title(f"“{prompt} …”", size=9, weight="normal", style="italic")
    axes[0].set_ylabel("probability")
    save(fig, "week_1_day_7")


def _distribution(ax: Axes, logits: torch.Tensor, tokenizer: Tokenizer) -> None:
    values, ids = torch.softmax(logits, dim=0).topk(SHOWN)
    # Three places, so that the picture doesn't depend on how a processor rounds.
    heights = [max(round(value, 3), 0.001) for value in values.tolist()]
    ax.bar(range(SHOWN), heights, width=0.8, color=PALE["ink"], edgecolor=COLORS["muted"], linewidth=0.7)
    ax.set_yscale("log")
    ax.set(ylim=(8e-4, 16), xlim=(-0.8, SHOWN + 0.8))
    ax.set_yticks([0.001, 0.01, 0.1, 1], ["0.001", "0.01", "0.1", "1"])
    ax.minorticks_off()
    names = [tokenizer.decode([i]).strip() or "␣" for i in ids.tolist()]
    ax.set_xticks(range(SHOWN), names, rotation=90, size=8)
    ax.tick_params(axis="x", length=0)
    for row, (name, keep, value, color, style) in enumerate(FILTERS):
        kept = int(torch.isfinite(keep(logits, value)).sum())
        # A processor's rounding moves the end of a long tail by a token: tens are enough to say there.
        count = str(kept) if kept <= SHOWN else f"about {round(kept, -1)}"
        _reach(ax, 6.5 / 2.25**row, kept, f"{name} keeps {count}", COLORS[color], style)


def _reach(ax: Axes, height: float, kept: int, text: str, color: str, style: Any) -> None:
    """A line over the tokens that are kept, with an arrow where they go on beyond the picture."""
    end = min(kept - 0.5, SHOWN + 0.8)
    ax.plot([-0.5, end], [height, height], color=color, linewidth=2.2)
    ax.text(
        -0.4,
        height * 1.12,
        text,
        color=color,
        va="bottom",
        size=8.5,
        bbox={"facecolor": COLORS["paper"], "edgecolor": "none", "pad": 0.6},
    )
    if kept <= SHOWN:
        ax.plot([end, end], [8e-4, height], color=color, linestyle=style, linewidth=1.3)
    else:
        ax.annotate("", (end, height), (end - 1, height), arrowprops={"arrowstyle": "-|>", "color": color})


if __name__ == "__main__":
    draw()
