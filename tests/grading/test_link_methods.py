"""Methods of the learner's objects that a test holds while it puts other things under their names."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from two_ends import linked


class Counter:
    """A class of the learner's."""

    def __init__(self) -> None:
        self.value = 0

    def add(self, more: int = 1) -> int:
        """Adds."""
        self.value += more
        return self.value

    def other(self) -> str:
        return "other"


@pytest.fixture
def code() -> Iterator[Any]:
    with linked(SimpleNamespace(Counter=type("Counter", (Counter,), {}), one=Counter())) as (code, _):
        yield code


def known(counter: Any) -> Any:
    """The counter, whose class is known to have a method `add`."""
    assert counter.add(0) == 0
    assert counter.add(0) == 0
    return counter


def test_a_method_that_was_replaced_is_still_the_one_that_was_held(code):
    counter = known(code.one)
    held, calls = counter.add, []

    def noted(more: int) -> int:
        calls.append(more)
        return held(more)

    counter.add = noted
    assert counter.add(5) == 5
    assert counter.add(2) == 7
    assert calls == [5, 2]


def test_a_method_that_was_held_can_be_put_back(code):
    counter = known(code.one)
    held = counter.add
    counter.add = lambda more: -1
    assert counter.add(3) == -1
    counter.add = held
    assert counter.add(3) == 3


def test_of_two_writes_the_first_decides_what_is_held(code):
    counter = known(code.one)
    held = counter.add
    counter.add = lambda more: -1
    counter.add = lambda more: -2
    assert held(4) == 4
    assert counter.add(4) == -2


def test_a_method_that_is_put_on_the_class_leaves_those_that_are_held(code):
    counter = known(code.Counter())
    held = counter.add
    code.Counter.add = lambda self, more: -1
    assert held(4) == 4
    assert counter.add(4) == -1


def test_a_held_method_of_another_name_or_object_is_as_it_was(code):
    counter, second = known(code.Counter()), code.Counter()
    assert (counter.other(), counter.other()) == ("other", "other")
    of_second, other = second.add, counter.other
    counter.add = lambda more: -1
    assert of_second(6) == 6
    assert (second.value, counter.value) == (6, 0)
    assert other() == "other"


def test_an_attribute_that_is_deleted_gives_the_class_s_method_back(code):
    counter = known(code.one)
    counter.add = lambda more: -1
    del counter.add
    assert counter.add(1) == 1


def test_a_held_method_tells_its_name(code):
    held = known(code.one).add
    assert held.__name__ == "add"
    code.one.add = lambda more: -1
    assert held.__name__ == "add"


def test_a_method_that_nothing_holds_is_not_fetched(monkeypatch):
    with linked(SimpleNamespace(one=Counter())) as (code, end):
        counter, call, operations = known(code.one), end.call, []

        def noted(operation: str, *arguments: Any) -> Any:
            operations.append(operation)
            return call(operation, *arguments)

        held = counter.add
        del held
        gc.collect()
        monkeypatch.setattr(end, "call", noted)
        counter.add = 7
        assert operations == ["setattr"]
        assert counter.add == 7


def test_an_attribute_without_a_method_of_its_name_can_be_written(code):
    counter = known(code.one)
    counter.fresh = 3
    assert counter.fresh == 3
