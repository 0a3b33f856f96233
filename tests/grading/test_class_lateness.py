"""What lateness costs, and where free days are spent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coursekit.task_state import TaskState
from grading.marks import DayMark, Marks, Student, TaskMark
from grading.policy.lateness import apply, days_late
from grading.policy.policy import Late, Policy, PolicyDay

DUE = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NO_GRACE = timedelta()


def day_mark(name: str, earned: int, points: int = 100) -> DayMark:
    task = TaskMark(f"{name}.1", "A task", points, earned, TaskState.PASSED, 1, 1)
    return DayMark(name, "A day", "x.md", (task,))


def marks_of(submitted: datetime | None, *earned: int, refusal: str = "") -> Marks:
    days = tuple(day_mark(f"1.{number}", points) for number, points in enumerate(earned, 1))
    return Marks(Student("s1"), "s1", "c", "c", "d", "none", DUE, 1.0, days, submitted, ("before",), refusal)


def policy_of(late: Late, *due: datetime | None, weights: tuple[float, ...] = ()) -> Policy:
    sizes = weights or (1.0,) * len(due)
    days = [
        PolicyDay(f"1.{number}", weight, at)
        for number, (at, weight) in enumerate(zip(due, sizes, strict=True), 1)
    ]
    return Policy("", tuple(days), late)


@pytest.mark.parametrize(
    ("past", "grace", "days"),
    [
        (-DAY, NO_GRACE, 0),
        (NO_GRACE, NO_GRACE, 0),
        (timedelta(seconds=1), NO_GRACE, 1),
        (DAY, NO_GRACE, 1),
        (DAY + timedelta(microseconds=1), NO_GRACE, 2),
        (HOUR, HOUR, 0),
        (HOUR + timedelta(seconds=1), HOUR, 1),
        (DAY, HOUR, 1),
        (2 * DAY, 2 * DAY, 0),
        (2 * DAY + HOUR, 2 * DAY, 3),
    ],
)
def test_late_days_begin_after_the_grace_and_count_from_the_due_time(
    past: timedelta, grace: timedelta, days: int
) -> None:
    assert days_late(DUE + past, DUE, grace) == days


def test_clocks_that_are_put_forward_make_no_hour() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    due = datetime(2026, 3, 28, 12, tzinfo=berlin)  # the night after has one hour less
    assert days_late(datetime(2026, 3, 29, 13, tzinfo=berlin), due, NO_GRACE) == 1
    assert days_late(datetime(2026, 3, 29, 13, 1, tzinfo=berlin), due, NO_GRACE) == 2


def test_an_extension_ends_at_the_same_time_of_day() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    policy = replace(
        policy_of(Late(percent=10), datetime(2026, 3, 28, 12, tzinfo=berlin)), extensions={"s1": {"": 1}}
    )
    assert apply(policy, marks_of(datetime(2026, 3, 29, 10, tzinfo=UTC), 100)).days[0].days_late == 0
    assert apply(policy, marks_of(datetime(2026, 3, 29, 10, 1, tzinfo=UTC), 100)).days[0].days_late == 1


def test_each_day_has_its_own_due_time_and_extension() -> None:
    policy = replace(
        policy_of(Late(percent=10), DUE, DUE + DAY, None, DUE), extensions={"s1": {"1.4": 1}, "s2": {"": 9}}
    )
    applied = apply(policy, marks_of(DUE + 2 * DAY, 100, 100, 100, 100))
    assert [day.days_late for day in applied.days] == [2, 1, 0, 1]
    assert [day.kept for day in applied.days] == [0.8, 0.9, 1.0, 0.9]


def test_days_that_do_not_count_are_left_out_and_weights_are_set() -> None:
    policy = Policy("", (PolicyDay("1.3", 3.0), PolicyDay("1.1", 0.5), PolicyDay("2.7")))
    applied = apply(policy, marks_of(DUE, 40, 50, 60))
    assert [(day.name, day.weight) for day in applied.days] == [("1.1", 0.5), ("1.3", 3.0)]
    assert applied.earned == 0.5 * 40 + 3 * 60


def test_without_days_nothing_is_changed() -> None:
    marks = marks_of(DUE + 99 * DAY, 10, 20)
    assert apply(Policy(late=Late(percent=50)), marks) == marks


def test_an_unknown_time_is_in_time_with_a_note_where_it_matters() -> None:
    applied = apply(policy_of(Late(percent=50), DUE), marks_of(None, 100))
    assert applied.days[0].kept == 1.0
    assert applied.notes == ("before", "the time of the submission isn't known, so it counts as in time")
    assert apply(policy_of(Late(percent=50), None), marks_of(None, 100)).notes == ("before",)
    assert apply(policy_of(Late(percent=50), DUE), marks_of(None, 0, refusal="no")).notes == ("before",)


def test_free_days_save_the_most_points_and_are_noted() -> None:
    applied = apply(policy_of(Late(percent=10, free=3), DUE, DUE + DAY), marks_of(DUE + 2 * DAY, 30, 100))
    assert [day.days_late for day in applied.days] == [2, 1]
    assert [day.kept for day in applied.days] == [1.0, 1.0]
    applied = apply(policy_of(Late(percent=10, free=1), DUE, DUE + DAY), marks_of(DUE + 2 * DAY, 30, 100))
    assert [day.kept for day in applied.days] == [0.8, 1.0]
    assert applied.notes == ("before", "Day 1.2: 1 free late day of 1 used")


def test_free_days_count_by_weight() -> None:
    policy = policy_of(Late(percent=10, free=1), DUE, DUE, weights=(5, 1))
    assert [day.kept for day in apply(policy, marks_of(DUE + DAY, 30, 100)).days] == [1.0, 0.9]


def test_free_days_may_all_be_needed_to_come_under_the_cap() -> None:
    policy = policy_of(Late(percent=1, cap=0, free=2), DUE, DUE + DAY, DUE + DAY)
    applied = apply(policy, marks_of(DUE + 2 * DAY, 100, 60, 60))
    assert [day.kept for day in applied.days] == [0.0, 1.0, 1.0]


def test_free_days_that_save_nothing_are_not_spent_and_of_equals_the_first_day_gets_them() -> None:
    applied = apply(policy_of(Late(percent=10, cap=1, free=3), DUE), marks_of(DUE + 9 * DAY, 100))
    assert applied.notes == ("before",)
    assert apply(policy_of(Late(percent=10, free=3), DUE), marks_of(DUE + DAY, 0)).notes == ("before",)
    applied = apply(policy_of(Late(percent=10, free=1), DUE, DUE), marks_of(DUE + DAY, 50, 50))
    assert [day.kept for day in applied.days] == [1.0, 0.9]


lates = st.builds(
    Late,
    st.integers(0, 3000).map(lambda minutes: timedelta(minutes=minutes)),
    st.floats(0, 100, allow_nan=False),
    st.none() | st.integers(0, 6),
    st.integers(0, 5),
)
offsets = st.integers(-200, 200).map(lambda hours: hours * HOUR)
days = st.lists(st.tuples(offsets, st.integers(0, 100), st.sampled_from([0.0, 0.5, 1.0, 3.0])), max_size=4)


def made(late: Late, of: list[tuple[timedelta, int, float]], submitted: datetime) -> tuple[Policy, Marks]:
    policy = policy_of(
        late, *(DUE + offset for offset, _, _ in of), weights=tuple(weight for _, _, weight in of)
    )
    return policy, marks_of(submitted, *(earned for _, earned, _ in of))


@given(lates, days, offsets)
def test_lateness_never_gives_points_and_being_in_time_takes_none(
    late: Late, of: list[tuple[timedelta, int, float]], offset: timedelta
) -> None:
    policy, marks = made(late, of, DUE + offset)
    in_time = apply(policy, replace(marks, submitted=DUE - 999 * DAY))
    applied = apply(policy, marks)
    assert all(day.kept == 1 and day.days_late == 0 for day in in_time.days)
    assert applied.earned <= in_time.earned + 1e-9
    assert all(0 <= day.kept <= 1 for day in applied.days)
    assert applied.points == in_time.points


@given(lates, days, offsets, st.integers(0, 100).map(lambda hours: hours * HOUR))
def test_later_is_never_better(
    late: Late, of: list[tuple[timedelta, int, float]], offset: timedelta, later: timedelta
) -> None:
    policy, marks = made(late, of, DUE + offset)
    assert (
        apply(policy, replace(marks, submitted=DUE + offset + later)).earned
        <= apply(policy, marks).earned + 1e-9
    )


@given(lates, days, offsets)
def test_free_days_are_spent_as_well_as_can_be(
    late: Late, of: list[tuple[timedelta, int, float]], offset: timedelta
) -> None:
    policy, marks = made(late, of, DUE + offset)
    applied = apply(policy, marks)
    counts = [day.days_late for day in applied.days]
    best = max(
        sum(
            weight * earned * late.kept(max(0, count - spent))
            for (_, earned, weight), count, spent in zip(of, counts, spends, strict=True)
        )
        for spends in product(range(late.free + 1), repeat=len(of))
        if sum(spends) <= late.free
    )
    assert applied.earned == pytest.approx(best)


@given(lates, offsets)
def test_the_last_moment_of_the_grace_is_in_time(late: Late, offset: timedelta) -> None:
    policy, marks = made(replace(late, free=0), [(offset, 100, 1.0)], DUE + offset + late.grace)
    assert apply(policy, marks).days[0].kept == 1.0
    after = apply(policy, replace(marks, submitted=DUE + offset + late.grace + timedelta(microseconds=1)))
    assert after.days[0].days_late >= 1
