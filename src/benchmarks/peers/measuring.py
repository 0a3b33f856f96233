"""Engines take turns, round after round, and what they have measured is kept as it comes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers.engine_process import EngineCommand, EngineFailed, EngineProcess, Measured
from benchmarks.peers.workloads import Workload


@dataclass(frozen=True)
class Turn:
    """An engine's run of a workload."""

    speed: float  # tokens per second
    measured: Measured


@dataclass(frozen=True)
class Start:
    """How an engine became ready."""

    seconds: float  # from its process's start
    memory: int | None  # bytes, the most until then


@dataclass
class Engine:
    """A row of the table, and what has been measured for it."""

    name: str
    label: str
    command: EngineCommand
    turns: dict[str, list[Turn]] = field(default_factory=dict)  # by the workload's name
    starts: list[Start] = field(default_factory=list)
    failed: str | None = None

    def median(self, workload: str, value: Callable[[Turn], float | None]) -> float | None:
        """The middle one of the values over the turns of a workload; None where there is none."""
        values = [found for turn in self.turns.get(workload, []) if (found := value(turn)) is not None]
        return statistics.median(values) if values else None

    @property
    def start(self) -> Start | None:
        """The start that took the middle time (of an even number, the longer one of the middle two)."""
        ordered = sorted(self.starts, key=lambda each: each.seconds)
        return ordered[len(ordered) // 2] if ordered else None

    def speed(self, workload: str) -> float | None:
        """The median of the tokens per second."""
        return self.median(workload, lambda turn: turn.speed)

    def first(self, workload: str) -> float | None:
        """The median of the seconds to the first token, each the mean over the requests."""
        return self.median(workload, lambda turn: turn.measured.first)

    def memory(self, workload: str) -> float | None:
        """The median of the bytes that it had at most."""
        return self.median(workload, lambda turn: turn.measured.memory)


@dataclass(frozen=True)
class Rounds:
    """How the engines are measured."""

    workloads: Sequence[Workload]
    count: int
    limit: float  # seconds, for a start and for each workload
    seed: int
    quick: bool  # fewer requests


def take_turns(engines: Sequence[Engine], rounds: Rounds) -> Generator[str]:
    """Let each engine run each workload, round after round, every other round backwards.

    Only one engine's process is alive at a time: it is started for its turn and ended after it. That takes up to a
    minute, but waiting engines would keep gigabytes, their threads may spin, and a process can be stopped by a signal
    on some systems only. So each round's figures are those of a new process, and the start is measured, too.

    An engine that fails is left out from then on, with the reason in `failed`; what it has measured counts.

    Yields:
        before each step, what comes next: for each engine and round a start, and each workload.
    """
    for number in range(rounds.count):
        for engine in engines if number % 2 == 0 else reversed(engines):
            if engine.failed is None:
                try:
                    yield from _turn(engine, rounds, number + 1)
                except EngineFailed as error:
                    engine.failed = str(error)


def _turn(engine: Engine, rounds: Rounds, number: int) -> Generator[str]:
    where = f"round {number} of {rounds.count}: {engine.name}"
    yield f"{where}, starting"
    with EngineProcess(engine.command, rounds.limit) as process:
        engine.starts.append(Start(process.seconds_to_ready, process.memory))
        for workload in rounds.workloads:
            yield f"{where}, {workload.name}"
            process.run(workload.warm_up(rounds.seed, rounds.quick), workload.room)
            requests = workload.make(rounds.seed, f"round {number}", rounds.quick)
            measured = process.run(requests, workload.room)
            turn = Turn(workload.counted(requests) / measured.seconds, measured)
            engine.turns.setdefault(workload.name, []).append(turn)


def best_peer(engines: Sequence[Engine], own: str, workload: str) -> float | None:
    """The fastest median among all but the engine of that name; None where no other has one."""
    speeds = [speed for each in engines if each.name != own and (speed := each.speed(workload)) is not None]
    return max(speeds, default=None)


def ratio(engines: Sequence[Engine], own: str, workload: str) -> float | None:
    """The own engine's speed over the best peer's; None where one of them was not measured."""
    speed = next((each.speed(workload) for each in engines if each.name == own), None)
    best = best_peer(engines, own, workload)
    return speed / best if speed is not None and best else None


def document(engines: Sequence[Engine], rounds: Rounds, own: str) -> dict[str, Any]:
    """All that was measured, turn by turn, ready for JSON."""
    names = [workload.name for workload in rounds.workloads]
    return {
        "workloads": {each.name: each.described(rounds.quick) for each in rounds.workloads},
        "engines": [_row(engine, names) for engine in engines],
        "ratios": {name: _rounded(ratio(engines, own, name), 3) for name in names},
    }


def _row(engine: Engine, workloads: Sequence[str]) -> dict[str, Any]:
    return {
        "name": engine.name,
        "label": engine.label,
        "failed": engine.failed,
        "starts": [{"seconds": round(each.seconds, 3), "memory": each.memory} for each in engine.starts],
        "workloads": {
            name: {
                "tokens_per_second": _rounded(engine.speed(name), 3),
                "first": _rounded(engine.first(name), 6),
                "memory": _rounded(engine.memory(name), 0),
                "turns": [_turn_document(turn) for turn in engine.turns[name]],
            }
            for name in workloads
            if name in engine.turns
        },
    }


def _turn_document(turn: Turn) -> dict[str, Any]:
    return {
        "tokens_per_second": round(turn.speed, 3),
        "seconds": round(turn.measured.seconds, 6),
        "first": _rounded(turn.measured.first, 6),
        "memory": turn.measured.memory,
    }


def _rounded(value: float | None, places: int) -> float | None:
    return None if value is None else round(value, places)
