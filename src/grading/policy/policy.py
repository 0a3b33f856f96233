"""The instructor's rules on weights and lateness, as `course.toml` states them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Late:
    """What lateness costs.

    ``grace`` after a due time costs nothing; then each day or part of one, counted from the due time, costs
    ``percent`` of the day's points. More than ``cap`` days late earns nothing; None: there is no such end. Each
    learner has ``free`` late days in all that cost nothing.
    """

    grace: timedelta = timedelta()
    percent: float = 0.0
    cap: int | None = None
    free: int = 0

    def kept(self, days: int) -> float:
        """The share of the points that is left when so many days late, from 0 to 1."""
        if days and self.cap is not None and days > self.cap:
            return 0.0
        return max(0.0, 100 - self.percent * days) / 100


@dataclass(frozen=True)
class PolicyDay:
    """One day that counts; ``due`` has a time zone, and is None where the day may come at any time."""

    name: str
    weight: float = 1.0
    due: datetime | None = None


@dataclass(frozen=True)
class Policy:
    """The rules of one class.

    No ``days`` means that all count alike and are never late. ``extensions`` are days that are added to due times:
    by learner's id, then by day ("1.3"), or "" for every day; both are added up.
    """

    title: str = ""
    days: tuple[PolicyDay, ...] = ()
    late: Late = field(default_factory=Late)
    extensions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def has_due(self) -> bool:
        """Whether the time of a submission matters."""
        return any(day.due is not None for day in self.days)

    def extension(self, learner: str, day: str) -> timedelta:
        """How much later than others a learner may hand in a day."""
        granted = self.extensions.get(learner, {})
        return timedelta(days=granted.get("", 0) + granted.get(day, 0))
