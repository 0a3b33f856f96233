"""The life of four requests: a real batcher, step by step, with the queue, the seats and the pages."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from style import COLORS, PALE, arrow, diagram, label, save

from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.model_runner import ModelRunner
from tiny_llm.paged.pool import KvPool
from tiny_llm.ragged.batch import RaggedBatch
from tiny_llm.ragged.batcher import Batcher
from tiny_llm.ragged.decode_state import DecodeState
from tiny_llm.request import Request

P, N, SEATS, BUDGET = 4, 8, 2, 8
COLOR = {"A": "blue", "B": "orange", "C": "green", "D": "purple"}
LEFT, WIDTH = 1.42, 0.78


@dataclass
class Moment:
    """One step: what was seen when the model had run, before any request left."""

    waiting: list[str]
    issued: list[
        tuple[str, int]
    ]  # by seat: the request, and how many tokens it brought; ("", 0) for an idle seat
    owners: list[str]  # of each page but the null page; "" for a free page
    told: list[str]  # the requests that got a token
    arrived: list[str]  # in the course of the step
    cancelled: list[str]
    ended: list[str]


class Recorder(Batcher):
    """Notes every step."""

    def __init__(self, core: RaggedBatch) -> None:
        super().__init__(core)
        self.batch = core
        self.moments: list[Moment] = []
        self.names: dict[Request, str] = {}  # of the tickets' own requests
        self.told: list[str] = []
        self.arrived: list[str] = []
        self.cancels: list[str] = []
        usual = core.runner.sample

        def sample(hidden: Any, took_part: Any) -> None:
            usual(hidden, took_part)
            self.note()

        core.runner.sample = sample  # type: ignore[method-assign]

    def submit(self, request: Request, on_token: Any = None) -> Future[list[int]]:
        future = super().submit(request, on_token)
        self.names[self.request_queue[-1].request] = "ABCD"[len(self.names)]
        return future

    def step(self) -> Sequence[Request]:
        self.told, self.arrived, self.cancels = [], [], []
        self.before = [sequence.length for sequence in self.batch.decode_state.sequences]
        self.waiting = [self.names[ticket.request] for ticket in self.request_queue]
        return super().step()

    def note(self) -> None:
        """What is to be seen now: called when tokens were sampled, before complete requests leave."""
        state = self.batch.decode_state
        seats = self.batch.state.seats
        names = ["" if running is None else self.names[running.request] for running in seats]
        counts = [sequence.length - was for sequence, was in zip(state.sequences, self.before, strict=True)]
        owners = [""] * (N - 1)
        for name, sequence in zip(names, state.sequences, strict=True):
            for page in sequence.pages:
                owners[page - 1] = name
        complete = [
            self.names[running.request]
            for running in seats
            if running is not None and running.request.finished(self.batch.max_positions)
        ]
        issued = list(zip(names, counts, strict=True))
        self.moments.append(
            Moment(self.waiting, issued, owners, self.told, self.arrived, self.cancels, complete)
        )


def record() -> list[Moment]:
    """The chapter's four requests: C waits for a seat, B's client leaves after two tokens, D comes later."""
    model: Any = SimpleNamespace(
        config=SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=1, max_positions=64),
        embedding=SimpleNamespace(weight=torch.zeros(10, 1)),
        hidden=lambda tokens, positions, caches: torch.zeros(*tokens.shape, 1),
        logits=lambda hidden: torch.zeros(*hidden.shape[:-1], 10),
    )
    runner = ModelRunner(model, KvPool(model.config, N, P))
    batcher = Recorder(RaggedBatch(runner, DecodeState(PageAllocator(N), P, SEATS, N - 1), BUDGET))
    futures: dict[str, Future[list[int]]] = {}

    def submit(name: str, prompt: int, count: int) -> None:
        def listen(token: int) -> None:
            batcher.told.append(name)
            if name == "B" and len(tokens[name]) == 1:
                batcher.cancels.append("B")
                futures["B"].cancel()
            if name == "A" and len(tokens[name]) == 2:
                batcher.arrived.append("D")
                submit("D", 9, 2)
            tokens[name].append(token)

        tokens[name] = []
        futures[name] = batcher.submit(Request([1] * prompt, count), listen)

    tokens: dict[str, list[int]] = {}
    for name, prompt, count in (("A", 6, 4), ("B", 5, 9), ("C", 3, 3)):
        submit(name, prompt, count)
    batcher.start()
    for name in "ACD":  # A's third token submits D, so C, which takes longer, ends after that
        futures[name].result()
    batcher.stop()
    return batcher.moments


def draw() -> None:
    moments = record()
    fig, ax = diagram(height=4.55)
    tops = {"clients": 3.72, "handed on": 3.2, "queue": 2.68, "seat 0": 2.16, "seat 1": 1.76, "pages": 0.2}
    label(ax, 0.1, 4.32, "step", align="left", size=8.5, color="muted")
    for name, y in tops.items():
        if name != "pages":
            label(ax, 0.1, y + 0.16, name, align="left", bold=True, size=8.5)
    label(ax, 0.1, 1.38, "pages", align="left", bold=True, size=8.5)
    label(ax, 0.1, 3.2, "tokens chosen", align="left", size=7.5, color="muted")
    for y, text in ((1.18, "the request that"), (1.02, "holds each, before"), (0.86, "any leaves")):
        label(ax, 0.1, y, text, align="left", size=7.5, color="muted")
    for n, moment in enumerate(moments):
        x = LEFT + n * WIDTH
        label(ax, x + (WIDTH - 0.1) / 2, 4.32, str(n + 1), size=8.5, color="muted")
        _clients(ax, x, tops, moment)
        _cells(ax, x, tops["queue"], moment.waiting)
        for seat, (name, count) in enumerate(moment.issued):
            _cell(ax, x, tops[f"seat {seat}"], WIDTH - 0.1, 0.32, name, f"{name} +{count}" if name else "")
        for page, owner in enumerate(moment.owners):
            _cell(
                ax, x, tops["pages"] + (len(moment.owners) - 1 - page) * 0.19, WIDTH - 0.1, 0.17, owner, owner
            )
    first = LEFT - 0.34
    for n, name in enumerate("ABC"):
        _mark(ax, first + (n - 1) * 0.17, tops["clients"] + 0.3, name)
    label(ax, first, tops["clients"] + 0.1, "submit", size=7.5, color="muted")
    save(fig, "week_3_day_7")


def _clients(ax: Axes, x: float, tops: dict[str, float], moment: Moment) -> None:
    """What clients hear and do in the course of a step; the letters in the lane below are tokens on their way."""
    places = {name: x + 0.14 + 0.2 * n for n, name in enumerate(dict.fromkeys(moment.told))}
    for name, at in places.items():
        _mark(ax, at, tops["handed on"] + 0.16, name)
        arrow(ax, (at, tops["handed on"] + 0.27), (at, tops["clients"] + 0.08), color=COLOR[name])
        if name in moment.ended:
            label(ax, at, tops["clients"] + 0.2, "end", size=7.5, color=COLOR[name], bold=True)
        if name in moment.cancelled:
            label(ax, at + 0.1, tops["clients"] + 0.2, "cancel", size=7.5, color="red", bold=True)
    for name in moment.arrived:
        label(ax, x + 0.34, tops["clients"] + 0.42, f"submit {name}", size=7.5, color=COLOR[name], bold=True)


def _cells(ax: Axes, x: float, y: float, names: list[str]) -> None:
    """The queue, its first on the left."""
    for n, name in enumerate(names):
        _cell(ax, x + n * 0.3, y, 0.27, 0.32, name, name)


def _mark(ax: Axes, x: float, y: float, name: str) -> None:
    label(ax, x, y, name, size=8.5, color=COLOR[name], bold=True)


def _cell(ax: Axes, x: float, y: float, width: float, height: float, name: str, text: str) -> None:
    color = COLOR.get(name, "")
    ax.add_patch(
        Rectangle(
            (x, y),
            width,
            height,
            facecolor=PALE[color] if color else COLORS["paper"],
            edgecolor=COLORS[color or "line"],
            linewidth=0.9,
            linestyle="-" if color else (0, (2, 2)),
        )
    )
    if text:
        label(ax, x + width / 2, y + height / 2, text, size=8.5 if height > 0.2 else 7)


if __name__ == "__main__":
    draw()
