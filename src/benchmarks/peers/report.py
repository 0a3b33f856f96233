"""What `bench peers` found, as tables: engines × workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.peers.catalogue import Peer
from benchmarks.peers.measuring import Engine, Rounds, ratio
from benchmarks.peers.workloads import Workload
from benchmarks.report import print_whole

BEST = "*"


@dataclass(frozen=True)
class Figure:
    """One thing that is shown of every engine and workload."""

    title: str
    value: Callable[[Engine, str], float | None]
    show: Callable[[float], str]
    best: Callable[[Sequence[float]], float]


SPEED = Figure(
    f"tokens per second, medians ({BEST} best of its column)",
    Engine.speed,
    lambda value: f"{value:,.0f}",
    max,
)
FIRST = Figure("seconds to the first token, mean over the requests", Engine.first, "{:.2f}".format, min)
MEMORY = Figure("memory of the process, MB at most", Engine.memory, lambda value: f"{value / 1e6:,.0f}", min)


def print_peers(
    console: Console,
    engines: Sequence[Engine],
    rounds: Rounds,
    own: str,
    missing: Sequence[Peer],
) -> None:
    """All tables, what has failed, and what could be measured too.

    Args:
        console: where to print.
        engines: the rows.
        rounds: how they were measured; its workloads are the columns.
        own: the name of the engine that is compared with the best other one.
        missing: engines that aren't installed.
    """
    for workload in rounds.workloads:
        console.print(workload.described(rounds.quick), style="dim", highlight=False)
    console.print()
    workloads = rounds.workloads
    measured = [each for each in engines if each.turns]
    if measured:
        print_whole(console, speed_table(measured, workloads, own))
        print_whole(console, figure_table(FIRST, measured, workloads))
        print_whole(console, figure_table(MEMORY, measured, workloads))
        print_whole(console, starts_table(measured))
    for engine in engines:
        if engine.failed is not None:
            console.print(
                f"failed: {engine.label}: {engine.failed}", style="red", markup=False, soft_wrap=True
            )
    for peer in missing:
        line = f"not installed: {peer.label}; to have it: {peer.install_command}"
        console.print(line, style="yellow", markup=False, soft_wrap=True)


def speed_table(engines: Sequence[Engine], workloads: Sequence[Workload], own: str) -> Table:
    """The speeds, and under them how the own engine's compare with the best of the others."""
    made = figure_table(SPEED, engines, workloads)
    ratios = [ratio(engines, own, workload.name) for workload in workloads]
    if any(each is not None for each in ratios):
        shown = ["" if each is None else f"{each:.2f} " for each in ratios]
        made.add_section()
        made.add_row("this course's, × best peer", *shown, style="bold")
    return made


def figure_table(figure: Figure, engines: Sequence[Engine], workloads: Sequence[Workload]) -> Table:
    """A row for each engine, a column for each workload, the best of each column marked."""
    made = _table(figure.title, [workload.name for workload in workloads])
    best: Mapping[str, float | None] = {
        workload.name: _best(figure, engines, workload.name) for workload in workloads
    }
    for engine in engines:
        cells = [
            _cell(figure, figure.value(engine, workload.name), best[workload.name]) for workload in workloads
        ]
        made.add_row(engine.label, *cells)
    return made


def starts_table(engines: Sequence[Engine]) -> Table:
    """How long each engine took to be ready, and with how much memory."""
    made = _table("from its process's start until the engine was ready", ["s", "MB"])
    for engine in engines:
        if engine.start is not None:
            memory = "–" if engine.start.memory is None else MEMORY.show(engine.start.memory)
            made.add_row(engine.label, f"{engine.start.seconds:.1f} ", f"{memory} ")
    return made


def _table(title: str, columns: Sequence[str]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.title, made.title_style, made.title_justify = title, "bold", "left"
    made.add_column("", min_width=34)
    for name in columns:
        made.add_column(f"{name} ", justify="right")
    return made


def _best(figure: Figure, engines: Sequence[Engine], workload: str) -> float | None:
    values = [value for each in engines if (value := figure.value(each, workload)) is not None]
    return figure.best(values) if len(values) > 1 else None


def _cell(figure: Figure, value: float | None, best: float | None) -> Text:
    if value is None:
        return Text("– ")
    marked = value == best
    return Text(f"{figure.show(value)}{BEST if marked else ' '}", style="bold green" if marked else "")
