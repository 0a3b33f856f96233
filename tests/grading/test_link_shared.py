"""Containers that both sides hold stay equal on both, as if there were one process."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from grading.link.shared import Shared
from grading.link.table import Table
from grading.link.wire import WireError, decode, encode


class Sides:
    """Two sides, and messages from one to the other."""

    def __init__(self) -> None:
        self.tables = Shared(), Shared()

    def send(self, side: int, value: Any = None) -> Any:
        """A message of one side, as it arrives at the other."""
        here, there = self.tables[side], self.tables[1 - side]
        changes = tuple(here.changes())
        here.forget()
        data = encode((changes, value), lambda value: pytest.fail("an object"), here.share, lambda error: ())
        return decode(data, lambda reference: reference, there.receive, ValueError)[1]


@pytest.mark.parametrize(
    ("make", "change", "after"),
    [
        (lambda: [1, 2], lambda x: x.append(3), [1, 2, 3]),
        (lambda: [1, 2], lambda x: x.clear(), []),
        (lambda: {1: 2}, lambda x: x.update({1: 3, 4: 5}), {1: 3, 4: 5}),
        (lambda: {1, 2}, lambda x: x.remove(1), {2}),
    ],
)
@pytest.mark.parametrize("owner", [0, 1])
def test_a_change_is_seen_on_the_other_side_in_the_same_object(make, change, after, owner):
    sides, mine = Sides(), make()
    theirs = sides.send(owner, mine)
    assert theirs == mine
    assert theirs is not mine
    change(theirs)
    sides.send(1 - owner)
    assert mine == after
    change_back = mine.clear
    change_back()
    sides.send(owner)
    assert theirs == make().__class__()


@pytest.mark.parametrize("owner", [0, 1])
def test_an_array_is_filled_on_the_other_side(owner):
    sides, mine = Sides(), np.full((2, 3), np.nan, np.float32)
    theirs = sides.send(owner, mine)
    theirs[1, 2] = 5
    sides.send(1 - owner)
    assert mine[1, 2] == 5
    assert np.isnan(mine).sum() == 5


def test_nan_that_stays_is_no_change():
    sides, mine = Sides(), np.full(2, np.nan)
    sides.send(0, mine)
    assert sides.tables[0].changes() == []


def test_a_container_stays_the_same_object_on_its_way_back_and_forth():
    sides, inner = Sides(), [1]
    mine = [inner, inner]
    theirs = sides.send(0, mine)
    assert theirs[0] is theirs[1]
    assert sides.send(1, theirs) is mine
    assert sides.send(0, mine) is theirs
    assert sides.send(1, theirs[0]) is inner


def test_what_a_temporary_was_given_reaches_its_owner():
    """`request.tokens.append(5)` in a test: nothing but the link holds the list there."""
    sides, mine = Sides(), [1]
    sides.send(0, mine).append(5)
    sides.send(1)
    assert mine == [1, 5]


def test_the_other_sides_content_does_not_undo_a_change_of_ones_own():
    sides, mine = Sides(), [1]
    theirs = sides.send(0, mine)
    mine.append(2)
    assert sides.send(1, theirs) is mine
    assert mine == [1, 2]


def test_containers_that_nothing_holds_are_forgotten():
    sides = Sides()
    for _ in range(5):
        sides.send(0, [[1], {2: [3]}, np.zeros(3)])
    gc.collect()
    for side in (0, 1) * 3:  # a level of them at a time
        sides.send(side)
    assert [len(table) for table in sides.tables] == [0, 0]


def test_a_container_that_one_side_has_forgotten_arrives_anew():
    sides, mine = Sides(), [1]
    sides.send(0, mine)
    sides.send(1)  # the other side holds it no more
    mine.append(2)
    assert sides.send(0, mine) == [1, 2]


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ([1], {1}),
        ({1: 1}, [1]),
        (np.zeros(2), [0, 0]),
        (np.zeros(2), np.zeros(3)),
        (np.zeros(2), np.zeros(2, int)),
    ],
)
def test_a_container_can_t_become_another_kind(value, content):
    shared = Shared()
    number, ours, _ = shared.share(value)
    with pytest.raises(WireError, match="became"):
        shared.receive(number, ours, True, content)


def test_an_array_that_is_read_only_is_never_written():
    array = np.zeros(2)
    array.flags.writeable = False
    shared = Shared()
    number, ours, _ = shared.share(array)
    with pytest.raises(WireError, match="read-only"):
        shared.receive(number, ours, True, np.ones(2))
    assert not array.any()


def test_items_that_refuse_to_be_compared_count_as_changed():
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    shared, value = Shared(), [Odd()]
    shared.share(value)
    value[0] = Odd()
    assert shared.changes() == [value]
    assert shared.changes() == []


class BothSidesStayEqual(RuleBasedStateMachine):
    """Whatever the two sides do to their copies in turn, after each message all are equal."""

    lists = Bundle("lists")

    @initialize()
    def begin(self) -> None:
        self.sides, self.pairs, self.turn = Sides(), list[tuple[list[Any], list[Any]]](), 0

    @rule(target=lists, content=st.lists(st.integers(), max_size=3))
    def new(self, content: list[Any]) -> int:
        theirs = self.sides.send(self.turn, content)
        self.pairs.append((content, theirs) if self.turn == 0 else (theirs, content))
        self.turn = 1 - self.turn
        return len(self.pairs) - 1

    @rule(which=lists, value=st.integers(), inner=lists)
    def change(self, which: int, value: int, inner: int) -> None:
        mine = self.pairs[which][self.turn]
        mine.append(value)
        if inner != which and not any(isinstance(each, list) for each in self.pairs[inner][self.turn]):
            mine[:1] = [self.pairs[inner][self.turn]]
        self.sides.send(self.turn)
        self.turn = 1 - self.turn

    @invariant()
    def equal(self) -> None:
        for here, there in getattr(self, "pairs", []):
            assert here == there


BothSidesStayEqual.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
test_both_sides_stay_equal = BothSidesStayEqual.TestCase


def test_an_object_is_kept_until_all_its_references_were_given_back():
    table, value = Table(), object()
    number = table.number(value)
    assert table.number(value) == number
    assert table[number] is value
    table.release(number, 1)
    assert table[number] is value
    table.release(number, 1)
    assert len(table) == 0
    with pytest.raises(KeyError):
        table[number]
    table.release(number, 1)  # an unknown one does nothing


def test_a_number_is_never_given_twice():
    table = Table()
    first = table.number(object())
    table.release(first, 1)
    assert table.number(object()) != first


def test_equal_objects_have_numbers_of_their_own():
    table = Table()
    a, b = 1.5, float("1.5")
    assert table.number(a) != table.number(b)
