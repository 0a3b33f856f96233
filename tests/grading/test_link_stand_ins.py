"""What stands for an object of the learner's behaves as the object would in a test's own process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from two_ends import linked

from grading.link.errors import LeftByCode
from grading.link.remote import Remote


class Base:
    """A class of the learner's."""

    __array_ufunc__ = None

    def __init__(self) -> None:
        self.items = [1]
        self.friend: Base | None = None

    def step(self) -> str:
        return "base"

    def __radd__(self, other: Any) -> Any:
        return other + 10


class Derived(Base):
    pass


class AnswersAll:
    def __getattr__(self, name: str) -> int:
        return 1


class Quiet:
    """Swallows an error, and says so with a number."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: Any) -> int:
        return 1 if error[0] is KeyError else 0


class Explains:
    """What the learner's errors have in common."""

    def advice(self) -> str:
        return "free a page"


class NoPages(Explains, ValueError):
    pass


class Leaves(Explains, SystemExit):
    pass


def fails(kind: type[BaseException], *arguments: Any) -> Any:
    def call() -> None:
        raise kind(*arguments)

    return call


def other_arguments() -> None:
    """An error that can't be made of the arguments that it has."""
    error = UnicodeDecodeError("utf-8", b"x", 0, 1, "no text")
    error.args = ("too few",)
    raise error


CODE = SimpleNamespace(
    Base=Base,
    Derived=Derived,
    AnswersAll=AnswersAll,
    Quiet=Quiet,
    NoPages=NoPages,
    no_pages=fails(NoPages, "none is free"),
    leaves=fails(Leaves, 0),
    other_arguments=other_arguments,
    echo=lambda *values: values[0],
)


@pytest.fixture
def code() -> Iterator[Any]:
    with linked(CODE) as (code, _):
        yield code


def test_what_python_and_libraries_look_for_is_not_asked_there(code):
    odd = code.AnswersAll()
    assert odd.anything == 1
    for name in ("__torch_function__", "__array_interface__", "__len_hint__"):
        assert not hasattr(odd, name)
        assert not hasattr(odd.anything_else, name)
        assert not hasattr(code.AnswersAll, name)


def test_a_method_has_no_attributes_between_double_underscores_but_the_usual(code):
    for _ in range(2):  # now known as a method, so another way
        step = code.Base().step
        assert step.__name__ == "step"
        assert not hasattr(step, "__array__") or isinstance(step, Remote)


def test_an_array_of_numpy_leaves_the_operator_to_the_object(code):
    np.testing.assert_array_equal(np.arange(3) + code.Base(), [10, 11, 12])


def test_an_attribute_that_is_an_object_is_it_each_time(code):
    item, friend = code.Base(), code.Base()
    item.friend = friend
    assert item.friend is friend
    assert item.friend is friend  # not taken for a method


def test_what_a_temporary_list_was_given_stays(code):
    item = code.Base()
    item.items.append(9)
    assert item.items == [1, 9]


def test_a_function_is_the_same_each_time_and_tells_its_name(code):
    assert code.no_pages is code.no_pages
    assert code.no_pages.__name__ == "call"


def test_classes_know_those_above_them(code):
    assert issubclass(code.Derived, code.Base)
    assert not issubclass(code.Base, code.Derived)
    assert not issubclass(int, code.Base)
    assert not isinstance(code.Base(), code.Derived)


def test_each_derived_class_has_objects_of_its_own(code):
    class First(code.Base):  # type: ignore[name-defined]
        def step(self) -> str:
            return f"first, {super().step()}"

    class Second(code.Base):  # type: ignore[name-defined]
        def step(self) -> str:
            return f"second, {super().step()}"

    first, second = First(), Second()
    assert (first.step(), second.step()) == ("first, base", "second, base")
    assert (type(first).__name__, type(second).__name__) == ("First", "Second")
    assert isinstance(first, First)
    assert not isinstance(first, Second)


def test_an_exit_swallows_an_error_with_anything_that_counts_as_true(code):
    with code.Quiet():
        raise KeyError("k")
    with pytest.raises(IndexError), code.Quiet():
        raise IndexError("i")


def test_an_error_with_a_class_above_that_is_none_of_errors_is_a_plain_one(code):
    with pytest.raises(code.NoPages, match="none is free") as info:
        code.no_pages()
    assert isinstance(info.value, ValueError)
    assert not isinstance(info.value, LeftByCode)
    assert info.value.advice() == "free a page"  # type: ignore[attr-defined]
    with pytest.raises(LeftByCode):
        code.leaves()


def test_an_error_that_can_t_be_made_here_tells_its_message(code):
    with pytest.raises(RuntimeError) as info:
        code.other_arguments()
    assert str(info.value) == "'utf-8' codec can't decode byte 0x78 in position 0: no text"


def test_an_object_that_crossed_many_times_is_given_back_once_nothing_holds_it():
    alive = []

    class Kept:
        def __init__(self) -> None:
            alive.append(self)

        def __del__(self) -> None:
            gone.append(1)

    gone: list[int] = []
    code = SimpleNamespace(Kept=Kept, echo=lambda value: value, forget=alive.clear)
    with linked(code) as (there, _):
        kept = there.Kept()
        there.forget()
        for _ in range(3):
            assert there.echo(kept) is kept
        gc.collect()
        assert gone == []
        del kept
        there.echo(1)
        assert gone == [1]
