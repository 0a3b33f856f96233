"""Throughput, wait and preemptions over the size of the pool, for three ways to share out pages.

The numbers stand below, since each machine measures others. `python book/figures/week_4_day_3_pool.py measure` makes
them: it takes a quarter of an hour.
"""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from style import COLORS, new_figure, save

from tiny_llm.engine_core import EngineCore
from tiny_llm.generate import greedy
from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.batch import PagedBatch
from tiny_llm.paged.model_runner import ModelRunner
from tiny_llm.prefix.trie_cache import TrieCache
from tiny_llm.ragged.batch import RaggedBatch
from tiny_llm.ragged.decode_state import DecodeState
from tiny_llm.request import Request
from tiny_llm.scheduling.batch import ExtendBatch
from tiny_llm.scheduling.preemption import PreemptiveScheduler

if TYPE_CHECKING:
    from torch import Tensor

PAGES = (60, 100, 160, 240, 400)
WAYS = {
    "reserve": ("reserve (3.2)", "muted", "o"),
    "banker": ("banker (3.6)", "blue", "s"),
    "preempt": ("preempt (4.3)", "orange", "D"),
}
# For each size of the pool: output tokens per second, mean seconds to the first token, preemptions. The default model
# in float32; the seconds are those of one processor core.
MEASURED: dict[str, Sequence[tuple[float, float, int]]] = {
    "reserve": ((32.1, 21.05, 0), (38.2, 16.5, 0), (46.4, 11.27, 0), (56.2, 7.25, 0), (73.9, 2.91, 0)),
    "banker": ((38.5, 14.28, 0), (51.5, 7.33, 0), (61.2, 3.01, 0), (87.7, 1.14, 0), (85.4, 1.21, 0)),
    "preempt": ((47.9, 9.28, 17), (62.9, 4.32, 8), (77.5, 1.95, 6), (86.6, 1.09, 0), (85.9, 1.14, 0)),
}

REQUESTS, SEATS, BUDGET, PAGE_SIZE = 32, 32, 128, 16
PROMPTS, ANSWERS, MOST = (16, 120), (16, 96), 256
MEAN_PAUSE = 0.2  # seconds from one request to the next
END = 0


def make(way: str, runner: ModelRunner, pages: int) -> EngineCore:
    allocator = PageAllocator(1 + pages)
    if way == "reserve":
        return PagedBatch(runner, allocator, SEATS, BUDGET)
    if way == "banker":
        return RaggedBatch(runner, DecodeState(allocator, PAGE_SIZE, SEATS, pages), BUDGET)
    limit = runner.model.config.max_positions
    return ExtendBatch(runner, PreemptiveScheduler(TrieCache(allocator, PAGE_SIZE), limit, SEATS, BUDGET))


def visits() -> Iterator[tuple[float, Request]]:
    """When each request comes, and the request: the same each time. An engine knows only MOST of their answers."""
    dice, at = random.Random(0), 0.0
    for _ in range(REQUESTS):
        prompt, answer = dice.randint(*PROMPTS), dice.randint(*ANSWERS)
        ids = [dice.randrange(2, 49000) for _ in range(prompt)]
        yield at, Request(ids, MOST, {END}, partial(_answer, prompt + answer))
        at += dice.expovariate(1 / MEAN_PAUSE)


def _answer(length: int, logits: Tensor, token_ids: Sequence[int]) -> int:
    """The greedy choice, and the end token when prompt and answer have their length."""
    return END if len(token_ids) + 1 >= length else max(END + 1, greedy(logits))


def serve(core: EngineCore) -> tuple[float, float, int]:
    """Let the requests come, and answer them; the clock is the time that the processor works on the steps."""
    coming = deque(visits())
    came = {request: at for at, request in coming}
    first: dict[Request, float] = {}
    waiting: deque[Request] = deque()
    now, preemptions = 0.0, 0
    while coming or waiting or core.requests:
        if not (waiting or core.requests):
            now = max(now, coming[0][0])
        while coming and coming[0][0] <= now:
            waiting.append(coming.popleft()[1])
        while waiting and core.idle:
            core.push(waiting.popleft())
        started = time.process_time()
        step = core.step()
        now += time.process_time() - started
        preemptions += len(step.preempted)
        for request, _ in step.issued:
            if request.num_generated:
                first.setdefault(request, now - came[request])
    tokens = sum(request.num_generated for request in came)
    return tokens / now, sum(first.values()) / len(first), preemptions


def measure() -> None:
    """Print the numbers of MEASURED."""
    from programs.cores import choose_for, make_runner
    from programs.loaded import load

    model = load("smollm2-135m", "float32", "cpu").model
    attention = choose_for("auto", model)
    serve(
        make("preempt", make_runner(model, 1 + PAGES[-1], attention), PAGES[-1])
    )  # compile what is to be compiled
    for pages in PAGES:
        for way in WAYS:
            rate, first, preemptions = serve(make(way, make_runner(model, 1 + pages, attention), pages))
            print(f"{pages} pages, {way}: ({rate:.1f}, {first:.2f}, {preemptions})", flush=True)


def draw() -> None:
    """A panel for each quantity."""
    fig, panels = new_figure(height=2.75, cols=3)
    titles = ("output tokens per second", "seconds to the first token", "preemptions")
    for index, (ax, title) in enumerate(zip(panels, titles, strict=True)):
        _panel(ax, title, index)
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(WAYS))
    save(fig, "week_4_day_3_pool")


def _panel(ax: Axes, title: str, index: int) -> None:
    for way, (label, color, marker) in WAYS.items():
        values = [row[index] for row in MEASURED[way]]
        ax.plot(PAGES, values, color=COLORS[color], marker=marker, markersize=4.5, label=label)
    ax.set(
        title=title, xlabel="pages of 16 tokens", xticks=PAGES, ylim=(0, None), xscale="log", xlim=(54, 445)
    )
    ax.set_xticks(PAGES, [str(pages) for pages in PAGES])
    ax.minorticks_off()
    ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.grid(axis="y")
    ax.tick_params(length=0)


if __name__ == "__main__":
    actions: dict[tuple[str, ...], Callable[[], None]] = {("measure",): measure}
    actions.get(tuple(sys.argv[1:]), draw)()
