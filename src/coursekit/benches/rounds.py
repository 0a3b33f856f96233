"""Measuring several ways to do a thing fairly: in turns, round after round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Values = Mapping[str, float]
"""What one run measured, by name: `tokens_per_second`, `worst_gap`, …"""


@dataclass(frozen=True)
class Case:
    """One row of a ladder: a way to run the engine on some requests."""

    name: str  # unique within the bench: "cached"
    ladder: str  # the ladder that it is a row of: "one"
    label: str  # what the row is called: "cached (Day 2.1)"
    run: Callable[[int], Values]  # generate so many tokens a request, and say what was measured
    tokens: int  # how many that is when it counts


@dataclass
class Samples:
    """What all the runs of one case measured."""

    case: Case
    runs: list[Values] = field(default_factory=list)

    def values(self, name: str) -> list[float]:
        """One number a run."""
        return [run[name] for run in self.runs]

    def median(self, name: str) -> float:
        return statistics.median(self.values(name))

    def spread(self, name: str) -> float:
        """How far apart the middle half of the runs lie, as a share of the median; 0 for a single run."""
        return spread(self.values(name))


def spread(values: Sequence[float]) -> float:
    """The distance between the quartiles as a share of the median; 0 for fewer than two values or a median of 0."""
    middle = statistics.median(values)
    if len(values) < 2 or not middle:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / abs(middle)


WARM_UP_TOKENS = 2


def measure(cases: Sequence[Case], repeats: int, samples: list[Samples]) -> Iterator[str]:
    """Warm every case up, then run them in turns, every other round backwards.

    So a machine that slows down, or a neighbour that comes and goes, touches all of them alike.

    Args:
        cases: what to measure.
        repeats: how many rounds.
        samples: filled while it goes on: what is in it counts even if the iteration is broken off.

    Yields:
        before each run, what comes next.
    """
    for case in cases:
        yield f"warming up: {case.label}"
        case.run(WARM_UP_TOKENS)
    samples.extend(Samples(case) for case in cases)
    for number in range(repeats):
        for each in samples if number % 2 == 0 else reversed(samples):
            yield f"round {number + 1} of {repeats}: {each.case.label}"
            each.runs.append(each.case.run(each.case.tokens))
