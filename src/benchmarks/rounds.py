"""Measuring several ways to do a thing fairly: in turns, round after round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from coursekit.running.stubs import reached_stub

Values = Mapping[str, float]
"""What one run measured, by name: `tokens_per_second`, `worst_gap`, …"""


@dataclass(frozen=True)
class Case:
    """One row of a ladder: a way to run the engine on some requests."""

    name: str  # unique within the bench: "cached"
    ladder: str  # the name of the ladder that it is a row of
    label: str  # what the row is called
    run: Callable[[int], Values]  # generates so many tokens a request, and says what was measured
    tokens: int  # how many that is when it counts


@dataclass
class Samples:
    """What all the runs of one case measured."""

    case: Case
    runs: list[Values] = field(default_factory=list)

    def median(self, name: str) -> float:
        """The middle of one number over the runs, of which there is at least one."""
        return statistics.median(run[name] for run in self.runs)

    def spread(self, name: str) -> float:
        """How far apart the middle half of the runs lie, as a share of their median."""
        return spread([run[name] for run in self.runs])


def spread(values: Sequence[float]) -> float:
    """The distance between the quartiles as a share of the median; 0 for a single value, or a median of 0."""
    middle = statistics.median(values)
    if len(values) < 2 or not middle:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / abs(middle)


WARM_UP_TOKENS = 2


@dataclass
class Record:
    """What a bench has measured so far, and what it had to leave out."""

    samples: list[Samples] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # a case's label -> which stub it reached

    @property
    def measured(self) -> list[Samples]:
        """Those that have run at least once."""
        return [each for each in self.samples if each.runs]


def run_rounds(cases: Sequence[Case], repeats: int, record: Record) -> Iterator[str]:
    """Warm every case up, then run them in turns, every other round backwards.

    So a machine that slows down, or a neighbour that comes and goes, touches all of them alike. A case that
    needs code which is not written yet is left out.

    Args:
        cases: what to measure.
        repeats: how many rounds.
        record: filled while it goes on: what is in it counts even if the iteration is broken off.

    Yields:
        before each run, what comes next.

    Raises:
        NotImplementedError: the code for none of the cases is there; the first one's.
    """
    errors = []
    for case in cases:
        yield f"warming up: {case.label}"
        try:
            case.run(WARM_UP_TOKENS)
        except NotImplementedError as error:
            stub = reached_stub(error)
            if stub is None:
                raise
            record.missing[case.label] = stub.message
            errors.append(error)
        else:
            record.samples.append(Samples(case))
    if errors and not record.samples:
        raise errors[0]
    yield from take_turns(record.samples, repeats)


def take_turns(samples: Sequence[Samples], repeats: int) -> Iterator[str]:
    """Run cases in turns, every other round backwards, and add what each run has measured.

    Args:
        samples: the cases, each warm.
        repeats: how many rounds.

    Yields:
        before each run, what comes next.
    """
    for number in range(repeats):
        for each in samples if number % 2 == 0 else reversed(samples):
            yield f"round {number + 1} of {repeats}: {each.case.label}"
            each.runs.append(each.case.run(each.case.tokens))
