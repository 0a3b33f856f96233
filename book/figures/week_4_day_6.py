"""One prompt and its three answers, noted while the reference runs: tokens, texts and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, diagram, label, save
from torch import Tensor

from tiny_llm.documents.page_cache import DocumentCache
from tiny_llm.documents.runner import DocumentRunner
from tiny_llm.documents.scheduler import DocumentScheduler
from tiny_llm.engine.batch import ServedBatch
from tiny_llm.engine.completion import Completion
from tiny_llm.engine.output import Delta
from tiny_llm.engine.params import SamplingParams
from tiny_llm.engine.request import Answered, AnsweredRequest
from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.pool import KvPool
from tiny_llm.ragged.batcher import Batcher
from tiny_llm.scheduling.standing import Chunk
from tiny_llm.tokenizer import Tokenizer, load_tokenizer

PROMPT = "User: Are you a dog?\nDog:"
ANSWERS = (" Yes 😀\n\nUser:", " No.<|im_end|>", " I am, I am, I\n")
SEED, MAX_TOKENS, P, PAGES = 26, 8, 4, 8
COLOR = ("blue", "orange", "green")
HALVES = {40303: "␣F09F98", 218: "80"}  # the bytes of tokens that are no text of their own

LEFT, COLUMN, PLACE, ROW, HEIGHT, LANE = 0.78, 0.79, 0.165, 0.265, 0.19, 0.78


@dataclass
class Step:
    """What a step did."""

    brings: list[int]  # prompt tokens or newest tokens, by answer; 0 for none
    pages: dict[int, tuple[set[int], int, int]]  # holders, tokens before the step, tokens after it
    tokens: dict[int, int] = field(default_factory=dict)
    sent: dict[int, str] = field(default_factory=dict)
    held: dict[int, str] = field(default_factory=dict)
    ends: dict[int, str] = field(default_factory=dict)


class ByHeart:
    """Knows the three answers, and finds them equally likely. Its hidden states are positions and tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocab = tokenizer.vocab_size
        self.config = SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=64)
        self.embedding = SimpleNamespace(weight=torch.zeros(vocab, 1))
        texts = [tokenizer.encode(PROMPT + answer) for answer in ANSWERS]
        self.known = {pair for text in texts for pair in zip(enumerate(text), text[1:], strict=False)}

    def hidden(self, tokens: Tensor, positions: Any, caches: Any) -> Tensor:
        return torch.stack([torch.as_tensor(positions).expand_as(tokens), tokens], dim=-1).float()

    def logits(self, hidden: Tensor) -> Tensor:
        logits = torch.full((len(hidden), len(self.embedding.weight)), -50.0)
        for row, here in enumerate(hidden.int().tolist()):
            for place, after in self.known:
                if list(place) == here:
                    logits[row, after] = 0
        return logits


class Recorder(ServedBatch):
    """Notes the pages when the model has run, before finished requests leave."""

    steps: list[Step]

    def sample(self, plan: Sequence[Chunk], hidden: Tensor) -> None:
        step = Step([0] * len(ANSWERS), {})
        cache = self.scheduler.cache
        assert isinstance(cache, DocumentCache)
        for node in cache.unheld:
            step.pages[node.page] = set(), P, P
        before = {}
        for chunk in plan:
            step.brings[self.index(chunk.running.request)] = chunk.count
            before[chunk.running] = chunk.running.sequence.length - chunk.count
        for running in self.scheduler.running:
            for number, page in enumerate(running.sequence.pages):
                counts = [
                    max(0, min(P, length - number * P))
                    for length in (before.get(running, running.sequence.length), running.sequence.length)
                ]
                holders, old, new = step.pages.get(page, (set(), counts[0], counts[1]))
                holders |= {self.index(running.request)}
                step.pages[page] = holders, min(old, counts[0]), max(new, counts[1])
        self.steps.append(step)
        super().sample(plan, hidden)

    def index(self, request: Any) -> int:
        assert isinstance(request, Answered)
        return request.completion.index


def run() -> list[Step]:
    """The loop of the batcher by hand, so that all answers begin in one step."""
    tokenizer = load_tokenizer()
    model: Any = ByHeart(tokenizer)
    cache = DocumentCache(PageAllocator(PAGES + 1), P)
    runner = DocumentRunner(model, KvPool(model.config, PAGES + 1, P))
    core = Recorder(runner, DocumentScheduler(cache, 64))
    core.steps = []
    batcher = Batcher(core)
    params = SamplingParams(
        temperature=1, seed=SEED, n=len(ANSWERS), max_tokens=MAX_TOKENS, stop=("\nUser:",)
    )
    prompt = tokenizer.encode(PROMPT)
    completions = []

    def deliver(delta: Delta) -> None:
        step = core.steps[-1]
        for token in delta.token_ids:
            step.tokens[delta.index] = token
        step.sent[delta.index] = step.sent.get(delta.index, "") + delta.text
        if delta.finish_reason is not None:
            step.ends[delta.index] = delta.finish_reason

    for index in range(params.n):
        completion = Completion(params, tokenizer, len(prompt), index, deliver)
        future = batcher.submit(AnsweredRequest(prompt, MAX_TOKENS, completion), completion.push)
        future.add_done_callback(completion.settle)
        completions.append(completion)
    batcher.admit()
    while batcher.tickets:
        batcher.retire(batcher.step())
        for completion in completions:
            held = completion.stops.held or (" F09F98" if completion.decoder.held else "")
            core.steps[-1].held[completion.index] = held
    return core.steps


def draw() -> None:
    """A column per step: the answers above, the pages below."""
    steps = run()
    tokenizer = load_tokenizer()
    height = 0.82 + len(ANSWERS) * LANE + PAGES * ROW + 0.26
    fig, ax = diagram(height=height)
    top = height - 0.22
    label(ax, 0.1, top, "step", align="left", size=8.5, color="muted")
    label(ax, 0.1, top - 0.24, "brings", align="left", size=8.5, color="muted")
    lanes = top - 0.52
    for index, color in enumerate(COLOR):
        y = lanes - index * LANE
        label(ax, 0.1, y, f"answer {index}", align="left", size=8.5, color=color, bold=True)
        label(ax, 0.1, y - 0.23, "sent", align="left", size=7.5, color="muted")
        label(ax, 0.1, y - 0.43, "held", align="left", size=7.5, color="muted")
    pages = lanes - len(ANSWERS) * LANE + 0.05
    for page in range(PAGES):
        label(ax, 0.1, pages - page * ROW - HEIGHT / 2, f"page {page + 1}", align="left", size=8.5)
    for number, step in enumerate(steps):
        x = LEFT + number * COLUMN
        middle = x + 2 * PLACE
        label(ax, middle, top, str(number), size=8.5, color="muted")
        _brings(ax, middle, top - 0.24, step.brings)
        for index in range(len(ANSWERS)):
            _answer(ax, x, lanes - index * LANE, step, index, tokenizer)
        for page in range(PAGES):
            _page(ax, x, pages - page * ROW - HEIGHT, step, page + 1)
    _legend(ax, LEFT, 0.13)
    save(fig, "week_4_day_6")


def words(text: str) -> str:
    """A text with its spaces and line ends made visible."""
    return text.replace(" ", "␣").replace("\n", "↵")


def _brings(ax: Axes, middle: float, y: float, brings: list[int]) -> None:
    shown = [(COLOR[index], str(count)) for index, count in enumerate(brings) if count]
    x = middle - (len(shown) - 1) * 0.11
    for color, count in shown:
        label(ax, x, y, count, size=8.5, color=color, bold=True)
        x += 0.22


def _answer(ax: Axes, x: float, y: float, step: Step, index: int, tokenizer: Tokenizer) -> None:
    """An answer's token in a step, and below it what is sent, and what is held back."""
    if index not in step.tokens:
        return
    color, token, width = COLOR[index], step.tokens[index], 4 * PLACE
    ax.add_patch(
        Rectangle((x, y - 0.1), width, 0.2, facecolor=PALE[color], edgecolor=COLORS[color], linewidth=0.9)
    )
    text = HALVES.get(token) or ("end" if token in tokenizer.end_ids else words(tokenizer.decode([token])))
    label(ax, x + width / 2, y, text, size=7.5)
    sent = words(step.sent[index])
    label(ax, x + width / 2, y - 0.23, sent, size=8, color=color, bold=True)
    if index in step.ends:
        label(ax, x + width / 2, y - 0.43, step.ends[index], size=7.5, color="red", bold=True)
    else:
        label(ax, x + width / 2, y - 0.43, words(step.held[index]), size=8, color="muted")


def _page(ax: Axes, x: float, y: float, step: Step, page: int) -> None:
    """The four places of a page; a page that several answers hold has a stripe of each below it."""
    holders, old, new = step.pages.get(page, (set(), 0, 0))
    first = min(holders, default=0)
    name = COLOR[first] if holders else "muted" if new else "line"
    for offset in range(P):
        face = COLORS["paper"] if offset >= new else COLORS[name] if offset >= old else PALE[name]
        face = face if holders or offset >= new else COLORS["line"]
        ax.add_patch(
            Rectangle(
                (x + offset * PLACE, y),
                PLACE,
                HEIGHT,
                facecolor=face,
                edgecolor=COLORS[name],
                linewidth=0.5,
                zorder=0.8,
            )
        )
    if len(holders) > 1:
        part = P * PLACE / len(holders)
        for number, index in enumerate(sorted(holders)):
            ax.add_patch(
                Rectangle((x + number * part, y - 0.045), part, 0.045, facecolor=COLORS[COLOR[index]])
            )


def _legend(ax: Axes, x: float, y: float) -> None:
    for text, face, edge, width in (
        ("computed in this step", COLORS["blue"], "blue", 1.7),
        ("before", PALE["blue"], "blue", 0.85),
        ("unheld: only the tree has it", COLORS["line"], "muted", 2.0),
    ):
        ax.add_patch(
            Rectangle((x, y - 0.055), 0.11, 0.11, facecolor=face, edgecolor=COLORS[edge], linewidth=0.7)
        )
        label(ax, x + 0.17, y, text, align="left", size=7.5)
        x += width
    for number, color in enumerate(COLOR):
        ax.add_patch(Rectangle((x + number * 0.09, y - 0.025), 0.09, 0.05, facecolor=COLORS[color]))
    label(ax, x + 0.34, y, "held by these answers", align="left", size=7.5)


if __name__ == "__main__":
    draw()
