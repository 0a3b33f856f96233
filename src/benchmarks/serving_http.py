"""Staggered arrivals over HTTP: what an OpenAI-compatible server gives its clients at several rates."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

from benchmarks.ladder import TOKENS_PER_SECOND, Ladder, Quantity
from benchmarks.load import Call, Reply, Service, send_all
from benchmarks.rounds import Case, Values
from benchmarks.serving import LONGEST, SHORTEST, TOKENS
from benchmarks.week_2 import TEXT
from coursekit.errors import CourseError

NAME = "serving-http"
PERCENTS = (50, 95, 99)
WARM_UP_CALLS = 3

FIRSTS = tuple(
    Quantity(f"first_{percent}", f"{percent}%{', s' if percent == PERCENTS[0] else ''}", places=2)
    for percent in PERCENTS
)
GAPS = tuple(
    Quantity(f"gap_{percent}", f"{percent}%{', ms' if percent == PERCENTS[0] else ''}", factor=1000, places=0)
    for percent in PERCENTS
)
FAILED = Quantity("failed", "failed", places=0)


def ladder(requests: int) -> Ladder:
    """What is shown for each rate."""
    title = f"{requests} requests over HTTP; percentiles of the time to the first token, then between tokens"
    return Ladder(NAME, title, (TOKENS_PER_SECOND, *FIRSTS, *GAPS, FAILED))


@dataclass(frozen=True)
class Plan:
    """Which requests come."""

    rates: tuple[float, ...] = (1.0, 2.0, 4.0)  # requests per second, on average
    requests: int = 40  # per rate and round
    seed: int = 0
    tokens: int = TOKENS  # what the longest answer has; the others have a quarter of it, or more


def parse_rates(text: str) -> tuple[float, ...]:
    """The rates in "1,2,4".

    Raises:
        CourseError: one of them is no number above 0, or is there twice.
    """
    try:
        rates = tuple(float(part) for part in text.split(","))
    except ValueError:
        rates = ()
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise CourseError(f"--rates is {text!r}; it must be numbers above 0, such as 1,2,4")
    if len(set(rates)) < len(rates):
        raise CourseError(f"--rates is {text!r}; each rate must be there once")
    return rates


def cases(service: Service, plan: Plan) -> Iterator[Case]:
    """A case for each rate."""
    for rate in plan.rates:
        label = f"{rate:g} request{'' if rate == 1 else 's'} per second"
        yield Case(f"rate-{rate:g}", NAME, label, _Rate(service, plan, rate), plan.tokens)


class _Rate:
    """Runs one rate, with other requests in each round."""

    def __init__(self, service: Service, plan: Plan, rate: float) -> None:
        self._service = service
        self._plan = plan
        self._rate = rate
        self._rounds = count(1)

    def __call__(self, tokens: int) -> Values:
        dice = random.Random(f"{self._plan.seed} {self._rate} {next(self._rounds)}")
        calls = list(make_calls(dice, self._rate, self._plan.requests, tokens))
        return measured(asyncio.run(send_all(self._service, calls)))


def warm_up(service: Service, plan: Plan) -> None:
    """A few short requests at once, which aren't measured.

    Raises:
        CourseError: all of them have failed.
    """
    calls = make_calls(random.Random(f"{plan.seed} warm-up"), float("inf"), WARM_UP_CALLS, 4)
    measured(asyncio.run(send_all(service, list(calls))))


def make_calls(dice: random.Random, rate: float, requests: int, tokens: int) -> Iterator[Call]:
    """Requests whose arrivals are a Poisson process; most prompts are short, answers are of any length.

    A prompt begins with a number of its own: no page of it is cached already.
    """
    words, at = TEXT.split(), 0.0
    for _ in range(requests):
        length = round(SHORTEST * (LONGEST / SHORTEST) ** dice.random() / TOKENS_PER_WORD)
        start = dice.randrange(len(words) - length)
        prompt = f"{dice.randrange(10**9):09} {' '.join(words[start : start + length])}"
        yield Call(prompt, max(1, dice.randint(tokens // 4, tokens)), at)
        at += dice.expovariate(rate)


TOKENS_PER_WORD = 1.3
"""Of English text, about, for the tokenizers of today: a server of any model is asked with text."""


def measured(replies: Sequence[Reply]) -> Values:
    """The figures of a run, from the replies that have not failed.

    Raises:
        CourseError: all of them have failed; it says what the first failed of.
    """
    from tiny_llm.ragged.metrics import percentile

    good = [reply for reply in replies if reply.error is None]
    timings = [reply.timing for reply in good if reply.timing.arrivals]
    if not timings:
        errors = [reply.error for reply in replies if reply.error is not None]
        raise CourseError(f"no request was answered: {errors[0] if errors else 'the answers have no text'}")
    firsts = [timing.first_token for timing in timings]
    gaps = [later - earlier for timing in timings for earlier, later in pairwise(timing.arrivals)]
    ended = max(timing.arrivals[-1] for timing in timings)
    seconds = ended - min(reply.timing.started for reply in replies)
    values = {
        "tokens_per_second": sum(reply.tokens for reply in good) / seconds,
        "failed": float(len(replies) - len(good)),
    }
    for percent in PERCENTS:
        values[f"first_{percent}"] = percentile(firsts, percent) or 0.0
        values[f"gap_{percent}"] = percentile(gaps, percent) or 0.0
    return values
