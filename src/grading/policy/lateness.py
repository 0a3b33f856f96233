"""Applies a policy to what a learner has earned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from grading.marks import DayMark, Marks
from grading.policy.policy import Late, Policy, PolicyDay

DAY = timedelta(days=1)


def apply(policy: Policy, marks: Marks) -> Marks:
    """The marks with the days that count, their weights, and what lateness has cost.

    Free days are spent where they save the most points; of two ways that save the same, as few as possible, and on
    the first days. A submission whose time isn't known is in time, with a note where a day has a due time.

    Args:
        policy: the rules.
        marks: as the grader has found them: nothing is taken off yet.
    """
    if not policy.days:
        return marks
    rules = {day.name: day for day in policy.days}
    days = [replace(day, weight=rules[day.name].weight) for day in marks.days if day.name in rules]
    late = [_days_late(policy, rules[day.name], marks) for day in days]
    free = _spend(policy.late, days, late)
    graded = tuple(
        replace(day, days_late=count, kept=policy.late.kept(count - spent))
        for day, count, spent in zip(days, late, free, strict=True)
    )
    notes = [
        f"Day {day.name}: {spent} free late {'day' if spent == 1 else 'days'} of {policy.late.free} used"
        for day, spent in zip(days, free, strict=True)
        if spent
    ]
    if marks.submitted is None and not marks.refusal and policy.has_due:
        notes.append("the time of the submission isn't known, so it counts as in time")
    return replace(marks, days=graded, notes=(*marks.notes, *notes))


def days_late(submitted: datetime, due: datetime, grace: timedelta) -> int:
    """How many days, begun ones included, a submission came after the due time; 0 within the grace.

    Args:
        submitted: with a time zone, as is ``due``.
        due: the last moment that is in time.
        grace: how much later costs nothing.
    """
    # In one zone: Python subtracts times of one and the same zone by their clocks, which are put forward and back.
    past = submitted.astimezone(UTC) - due.astimezone(UTC)
    return 0 if past <= grace else -(-past // DAY)


def _days_late(policy: Policy, day: PolicyDay, marks: Marks) -> int:
    if day.due is None or marks.submitted is None:
        return 0
    due = day.due + policy.extension(marks.student.id, day.name)
    return days_late(marks.submitted, due, policy.late.grace)


def _spend(late: Late, days: Sequence[DayMark], counts: Sequence[int]) -> list[int]:
    """How many free days each day gets, so that what is kept of all points is the most.

    The best ways to spend at most 0, 1, 2, … free days, improved day by day: ``ways[n]`` has the points that are kept
    and the free days spent on each day so far.
    """
    ways: list[tuple[float, list[int]]] = [(0.0, [])] * (late.free + 1)
    for day, count in zip(days, counts, strict=True):
        ways = [_better(late, day, count, ways[: most + 1]) for most in range(late.free + 1)]
    return ways[-1][1]


def _better(
    late: Late, day: DayMark, count: int, ways: Sequence[tuple[float, list[int]]]
) -> tuple[float, list[int]]:
    """The best way to spend on one day more; ``ways[n]`` is the best for the days before it with n free days."""
    most = len(ways) - 1
    choices = []
    for spent in range(min(count, most) + 1):
        points, before = ways[most - spent]
        points += day.weight * day.earned * late.kept(count - spent)
        choices.append((points, [*before, spent]))
    return max(choices, key=lambda choice: (round(choice[0], 9), -sum(choice[1]), choice[1]))
