"""A learner's side that lies, past its own code: nothing of it is believed, and none of its objects gets through."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from two_ends import linked

from coursekit import arrays
from grading.link.errors import LeftByCode
from grading.link.operations import LONGEST_TEXT, Granted
from grading.link.remote import RemoteMethod
from grading.link.wire import WireError


class Thing:
    """An object of the learner's that could be a yes, a number or an array."""

    def __bool__(self) -> bool:
        return True

    def __index__(self) -> int:
        return 1

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.zeros(2)


FORGED = [1, "yes", Thing()]


@pytest.mark.parametrize("answer", FORGED, ids=["a number", "a text", "an object"])
def test_a_yes_counts_only_if_it_is_true_itself(answer):
    questions = ("bool", "contains", "isinstance", "issubclass", "exit")
    lies = {name: lambda *arguments: answer for name in questions}
    with linked(SimpleNamespace(thing=Thing(), Thing=Thing, Other=Fake), lies) as (there, _):
        thing, kind = there.thing, there.Thing
        assert bool(thing) is False
        assert (1 in thing) is False
        assert isinstance(thing, kind) is False
        assert issubclass(there.Other, kind) is False
        assert thing.__exit__(KeyError, KeyError("k"), None) is False


@pytest.mark.parametrize("answer", FORGED, ids=["a number", "a text", "an object"])
@pytest.mark.parametrize("question", ["to_numpy", "dtype_name", "framework", "share_memory", "span"])
def test_what_is_said_of_an_array_has_the_type_of_such_an_answer(question, answer):
    if question in ("dtype_name", "framework") and isinstance(answer, str):
        answer = 2.5
    torch = pytest.importorskip("torch")
    lies = {"framework": lambda value: "torch", question: lambda *values: answer}
    with linked(SimpleNamespace(ones=torch.ones(2)), lies) as (there, end):
        ones = there.ones
        with pytest.raises(TypeError, match=f"{question} gave a "):
            end.ask(question, ones, (ones,) if question == "share_memory" else ())


def test_only_what_is_an_array_is_asked_for_its_framework():
    with linked(SimpleNamespace(thing=Thing()), {"framework": lambda value: "torch"}) as (there, _):
        assert arrays.framework(there.thing) is None


@pytest.mark.parametrize("show", [repr, str])
def test_a_text_about_an_object_is_a_text(show):
    with linked(SimpleNamespace(thing=Thing()), {"repr": lambda value: 5, "str": lambda value: 5}) as (
        there,
        _,
    ):
        assert show(there.thing) == "5"


class Fake:
    """An object of a test's."""

    secret = "the expected value"

    def __init__(self) -> None:
        self.told: list[Any] = []

    def tell(self, what: Any) -> None:
        self.told.append(what)


@pytest.mark.parametrize("name", ["secret", "__class__", "__dict__", "told"])
def test_a_method_that_is_handed_in_is_no_way_around_the_grant(name):
    """A reference to a method names its object and an attribute: any attribute, where nobody looks."""

    def hand_in(fake: Any) -> None:
        fake.tell(RemoteMethod(fake, name))

    fake = Fake()
    with linked(SimpleNamespace(hand_in=hand_in, echo=lambda value: value)) as (there, _):
        with pytest.raises(ValueError, match="has no attribute"):
            there.hand_in(fake)
        assert fake.told == []
        assert there.echo(1) == 1


def test_an_error_can_t_name_a_class_of_the_tests_that_is_none_of_errors():
    made = []

    class Kept:
        def __init__(self, *arguments: Any) -> None:
            made.append(arguments)

    record = (None, Kept, (("builtins.KeyError", ()),), "k", ("k",), (), None)
    with linked(SimpleNamespace()) as (_, end):
        assert type(end._error_of(record)) is KeyError
    assert made == []


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        (None, None, (), "k"),
        (None, None, (("builtins.KeyError", ()),), 5, (), (), None),
        (None, None, (("builtins.KeyError", ()),), "k", [], (), None),
        (None, None, (("builtins.KeyError", ()),), "k", (), (), "a cause"),
    ],
)
def test_an_error_with_a_record_of_another_form_is_refused(record):
    with linked(SimpleNamespace()) as (_, end), pytest.raises(WireError, match="an error with"):
        end._error_of(record)


@pytest.mark.parametrize(
    "name", ["os.error", "sys.exit", "grading.link.lanes.Gone", "coursekit.errors.CourseError"]
)
def test_an_error_can_t_pass_for_one_of_the_graders(name):
    with linked(SimpleNamespace()) as (_, end):
        error = end._error_of((None, None, ((name, ()),), "no", (), (), None))
    assert isinstance(error, LeftByCode)
    assert type(error).__name__ == name.rpartition(".")[2]


@pytest.mark.parametrize("name", ["a b", "a\x1b[2J", "", "x" * 101, "1"])
def test_a_class_with_an_odd_name_is_called_an_object(name):
    thing = type(name, (), {})()
    with linked(SimpleNamespace(thing=thing)) as (there, _):
        assert type(there.thing).__name__ == "object"


@pytest.mark.parametrize("what", [Thing, Fake.tell, Fake().tell, len, np])
def test_granted_operations_never_write_into_functions_classes_and_modules(what):
    granted = Granted(frozenset({"missing"}))
    for operation, arguments in (("setattr", (1,)), ("delattr", ()), ("getattr", ())):
        with pytest.raises(AttributeError):
            granted(operation, (what, "missing", *arguments))


def test_a_name_between_underscores_is_closed_though_it_is_granted():
    granted = Granted(frozenset({"_hidden", "__class__", "__dict__", "open"}))
    thing = SimpleNamespace(_hidden=1, open=2)
    assert granted("getattr", (thing, "open")) == 2
    for name in ("_hidden", "__class__", "__dict__"):
        with pytest.raises(AttributeError):
            granted("getattr", (thing, name))


@pytest.mark.parametrize(
    "name", ["attrgetter", "methodcaller", "itemgetter", "call", "setitem", "eq", "ne", "__add__"]
)
def test_only_operators_are_operators(name):
    """`operator.attrgetter` would be a way to any attribute."""
    with pytest.raises(TypeError, match="no operator"):
        Granted(frozenset())("operator", (name, 1, 2))


def test_a_long_message_of_an_error_of_the_tests_is_cut():
    assert Granted(frozenset())("str", (KeyError("x" * 10**6),)) == ("'" + "x" * 10**6)[:LONGEST_TEXT]


def test_a_long_text_about_an_object_is_cut_where_it_is():
    class Long:
        def __repr__(self) -> str:
            return "x" * 10**6

    with linked(SimpleNamespace(long=Long())) as (there, _):
        assert len(repr(there.long)) == len(str(there.long)) == LONGEST_TEXT


def test_a_message_over_which_unpacking_stumbles_is_an_error_and_the_link_goes_on(monkeypatch):
    with linked(SimpleNamespace(value=3, other=4)) as (there, end):
        true = end._lanes._side

        def stumble(data: bytes) -> Any:
            monkeypatch.setattr(end._lanes, "_side", true)
            raise TypeError("unhashable type: 'list'")

        monkeypatch.setattr(end._lanes, "_side", replace(true, unpack=stumble))
        with pytest.raises(WireError, match="a message can't be unpacked: TypeError: unhashable"):
            _ = there.value
        assert there.other == 4
