"""What a kind of operation achieves beside what the machine gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.profiling.machine_limits import MachineLimits
from benchmarks.profiling.spans import KINDS, MATMUL, Piece, seconds_of
from benchmarks.profiling.work import Cost

FAR = 0.25
"""Below this share of what the machine gives, neither memory nor arithmetic is what it waits for."""


@dataclass(frozen=True)
class Verdict:
    """A kind of operation in one step."""

    kind: str
    seconds: float
    cost: Cost
    bandwidth: float  # of the machine, bytes per second
    peak: float  # of the machine, operations per second
    numbers: str  # the format of the arithmetic

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.cost.operations / self.cost.bytes

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.cost.operations / self.seconds

    @property
    def by_memory(self) -> bool:
        """Whether reading takes the machine longer than computing."""
        return self.cost.bytes / self.bandwidth >= self.cost.operations / self.peak

    @property
    def share(self) -> float:
        """The time that the machine needs at least, over the time that was taken."""
        return max(self.cost.bytes / self.bandwidth, self.cost.operations / self.peak) / self.seconds

    def line(self) -> str:
        """The same in words."""
        moved, done = self.cost.bytes / self.seconds / 1e9, self.rate / 1e9
        given = "memory gives" if self.by_memory else f"{self.numbers} arithmetic gives"
        text = (
            f"{self.kind}: {100 * self.share:.0f} % of what {given} "
            f"({moved:,.1f} GB/s, {done:,.1f} GOP/s; {self.intensity:,.1f} operations per byte); "
        )
        if self.share > 1:
            return text + "faster than memory: what it reads lies in caches"
        if self.share < FAR:
            return text + "limited by neither: latencies, calls, caches"
        return text + f"limited by {'memory' if self.by_memory else 'arithmetic'}"


def verdicts(
    pieces: Sequence[Piece], costs: dict[str, Cost], limits: MachineLimits, matmul_numbers: str
) -> list[Verdict]:
    """One for each kind that took time, and whose work is known.

    Args:
        matmul_numbers: the format that matrices are multiplied in; all else computes in float32.
    """
    made = []
    for kind in KINDS:
        seconds = seconds_of(pieces, kind)
        if kind in costs and seconds > 0 and costs[kind].bytes > 0:
            numbers = matmul_numbers if kind == MATMUL else "float32"
            peak = limits.peak(numbers)
            made.append(Verdict(kind, seconds, costs[kind], limits.bandwidth, peak, numbers))
    return made
