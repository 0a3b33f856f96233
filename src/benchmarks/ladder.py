"""What a bench consists of: ladders of cases, and what they have to show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.rounds import Samples


@dataclass(frozen=True)
class Quantity:
    """Something that a run measures."""

    name: str
    heading: str
    factor: float = 1.0  # what to multiply by before it is shown
    places: int = 1

    def show(self, value: float) -> str:
        return f"{value * self.factor:,.{self.places}f}"


TOKENS_PER_SECOND = Quantity("tokens_per_second", "tokens/s")
WORST_GAP = Quantity("worst_gap", "worst gap, ms", factor=1000, places=0)
CACHE_MEGABYTES = Quantity("cache_bytes", "cache, MB", factor=1e-6, places=0)
MEAN_FIRST = Quantity("mean_first", "first, s", places=2)  # the wait for a request's first token
LAST_FIRST = Quantity("worst_first", "last first token, s", places=2)


@dataclass(frozen=True)
class Ladder:
    """Cases that are compared with one another."""

    name: str
    title: str
    quantities: tuple[Quantity, ...]  # the first is the one that the rows are compared by
    climbs: bool = False  # whether each row goes on from the one before: it is compared with that one, too


@dataclass(frozen=True)
class Bar:
    """What a ladder has to show: one case's median over another's is at least so much.

    Two quantities of one case can be compared, too.
    """

    text: str
    case: str
    other: str
    quantity: Quantity
    at_least: float
    other_quantity: Quantity | None = None  # of the other case; None: the same

    def ratio(self, samples: Sequence[Samples]) -> float | None:
        """What was measured; None if one of the two cases was not.

        Args:
            samples: cases with at least one run.
        """
        found = {each.case.name: each for each in samples}
        if self.case not in found or self.other not in found:
            return None
        other = self.other_quantity or self.quantity
        return found[self.case].median(self.quantity.name) / found[self.other].median(other.name)


@dataclass(frozen=True)
class Outcome:
    """A bar and what was measured for it."""

    bar: Bar
    ratio: float

    @property
    def met(self) -> bool:
        return self.ratio >= self.bar.at_least


def outcomes(bars: Sequence[Bar], samples: Sequence[Samples]) -> list[Outcome]:
    """Every bar whose two cases were measured."""
    ratios = ((bar, bar.ratio(samples)) for bar in bars)
    return [Outcome(bar, ratio) for bar, ratio in ratios if ratio is not None]
