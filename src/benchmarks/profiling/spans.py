"""A step divided into pieces: each moment belongs to one operation, or to the host."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

MATMUL, ATTENTION, SMALL, SAMPLING, HOST = "matmul", "attention", "small operations", "sampling", "host"
KINDS = (MATMUL, ATTENTION, SMALL, SAMPLING, HOST)
"""What a step consists of."""
PROFILE = "profile"
"""What there is only because somebody looks: it is no part of a step."""


@dataclass(frozen=True)
class Operation:
    """An operation of torch, or a call of a kernel; seconds on the recording's clock."""

    name: str
    kind: str  # MATMUL, ATTENTION or SMALL, by its name alone
    start: float
    end: float
    detail: str = ""  # shapes
    calling: float = 0.0  # seconds at its start that Python takes to call it


@dataclass(frozen=True)
class Region:
    """Something that operations happen in: attention, sampling, or a kernel that is run part by part (PROFILE)."""

    kind: str
    start: float
    end: float


@dataclass(frozen=True)
class Piece:
    """A part of a step that belongs to one operation, or to none of them."""

    kind: str
    name: str
    start: float
    end: float
    detail: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.start


def divide(
    operations: Iterable[Operation], regions: Sequence[Region], start: float, end: float
) -> list[Piece]:
    """The pieces of a step, from its start to its end without a gap and without overlap.

    Of operations inside one another the outermost counts, with its whole time. In a region of attention every
    operation is attention; in one of sampling a small operation, and what is between operations, is sampling. What is
    between operations elsewhere is the host's, and the profile's where a kernel is run part by part.
    """
    pieces: list[Piece] = []
    now = start
    for each in sorted(operations, key=lambda each: (each.start, -each.end)):
        begin, stop = max(each.start, now), min(each.end, end)
        if each.end <= start or each.start < now > start or stop <= begin:
            continue  # outside of the step, or inside the operation before
        pieces += _between(now, begin, regions)
        around = _around(begin, regions)
        called = min(begin + each.calling, stop)
        if called > begin:
            pieces.append(
                Piece(PROFILE if PROFILE in around else HOST, f"call of {each.name}", begin, called)
            )
        if stop > called:
            pieces.append(Piece(_kind(each.kind, around), each.name, called, stop, each.detail))
        now = stop
    return pieces + _between(now, end, regions)


def _kind(kind: str, around: set[str]) -> str:
    if ATTENTION in around:
        return ATTENTION
    return SAMPLING if SAMPLING in around and kind == SMALL else kind


def _around(moment: float, regions: Sequence[Region]) -> set[str]:
    return {each.kind for each in regions if each.start <= moment < each.end}


def _between(start: float, end: float, regions: Sequence[Region]) -> list[Piece]:
    """What no operation takes, cut where regions begin and end."""
    edges = {edge for each in regions for edge in (each.start, each.end) if start < edge < end}
    pieces = []
    for one, other in pairwise(sorted({start, end} | edges)):
        around = _around((one + other) / 2, regions)
        kind = PROFILE if PROFILE in around else SAMPLING if SAMPLING in around else HOST
        pieces.append(Piece(kind, "Python", one, other))
    return pieces


def closed_up(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces of the step itself, from 0 on, without the profile's own: what comes behind one moves up."""
    made, now = [], 0.0
    for each in pieces:
        if each.kind != PROFILE:
            made.append(replace(each, start=now, end=now + each.seconds))
            now += each.seconds
    return made


def seconds_of(pieces: Iterable[Piece], kind: str | None = None) -> float:
    """The time of all pieces of a kind; of all that belong to the step if none is given."""
    return sum(
        each.seconds for each in pieces if (each.kind != PROFILE if kind is None else each.kind == kind)
    )


def median_of(steps: Sequence[list[Piece]]) -> int:
    """Which of some steps takes the median of their times; of two in the middle, the shorter one."""
    times = [seconds_of(pieces) for pieces in steps]
    return times.index(statistics.median_low(times))


@dataclass(frozen=True)
class Total:
    """All calls of one operation with the same shapes."""

    kind: str
    name: str
    detail: str
    calls: int
    seconds: float


def totals(pieces: Iterable[Piece]) -> list[Total]:
    """The operations of a step, the most expensive first; the host's pieces and the profile's aren't among them."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for each in pieces:
        if each.kind in (HOST, PROFILE) or each.name == "Python":
            continue
        found.setdefault((each.kind, each.name, each.detail), []).append(each.seconds)
    made = [Total(*key, len(seconds), sum(seconds)) for key, seconds in found.items()]
    return sorted(made, key=lambda each: -each.seconds)
