"""What crosses between grader and worker: each value keeps its exact type, and no bytes do harm."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grading.link import wire
from grading.link.wire import MUTABLE, Reference, WireError, decode, encode

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.text()
    | st.binary()
    | st.just(...)
)
KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    PLAIN | st.slices(20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.sets(KEYS, max_size=4)
        | st.frozensets(KEYS, max_size=4)
    ),
    max_leaves=12,
)


def crossed(value: Any, refer: Callable[[Any], Reference] | None = None) -> Any:
    """The value on the other side; containers are new there."""
    numbers = iter(range(10**9))

    def none(value: Any) -> Reference:
        raise AssertionError(f"{type(value).__name__} has no form of its own")

    data = encode(
        value, refer or none, lambda container: (next(numbers), True, False), lambda error: error.args
    )
    return read(data)


def read(data: bytes) -> Any:
    return decode(data, lambda reference: reference, lambda n, ours, changed, content: content, ValueError)


def alike(a: Any, b: Any) -> bool:
    """Equal, with equal types all the way down; NaN equals NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(alike, a.values(), b.values()))
    return bool(a == b)


@given(VALUES)
def test_a_plain_value_arrives_as_it_was(value):
    assert alike(crossed(value), value)


@given(
    st.sampled_from([np.bool_, np.int8, np.int64, np.uint16, np.float32, np.float64, np.complex64]),
    st.lists(st.integers(0, 4), max_size=4).map(tuple),
    st.booleans(),
)
def test_an_array_arrives_with_dtype_shape_and_content(dtype, shape, writeable):
    array = np.arange(math.prod(shape)).astype(dtype).reshape(shape)
    array.flags.writeable = writeable
    found = crossed(array)
    assert type(found) is np.ndarray
    assert (found.dtype, found.shape, found.flags.writeable) == (array.dtype, shape, writeable)
    np.testing.assert_array_equal(found, array)


def test_a_transposed_array_keeps_its_rows_and_columns():
    array = np.arange(6).reshape(2, 3).T
    np.testing.assert_array_equal(crossed(array), array)


@pytest.mark.parametrize("value", [np.float32(1.5), np.int64(-3), np.bool_(True), np.complex64(1j)])
def test_a_numpy_scalar_stays_one(value):
    found = crossed(value)
    assert type(found) is type(value)
    assert found == value


def test_an_array_of_objects_is_refused():
    with pytest.raises(WireError, match="object"):
        crossed(np.array([object()]))


class Number(int):
    def __index__(self) -> int:
        raise AssertionError("the wire asked the learner's method")

    def __int__(self) -> int:
        raise AssertionError("the wire asked the learner's method")


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise AssertionError("the wire asked the learner's method")


class Real(float):
    def __float__(self) -> float:
        raise AssertionError("the wire asked the learner's method")


class Data(bytes):
    def __getitem__(self, place: Any) -> Any:
        raise AssertionError("the wire asked the learner's method")


class Row(tuple):
    __slots__ = ()

    def __iter__(self) -> Any:
        raise AssertionError("the wire asked the learner's method")


class Half(np.float64):
    pass


def test_an_exception_crosses_as_what_its_record_says():
    found = crossed(KeyError("k", 2))
    assert type(found) is ValueError
    assert found.args == (("k", 2),)


def test_an_exception_that_is_meant_itself_crosses_as_a_reference():
    error = KeyError("k")
    seen = []

    def refer(value: Any) -> Reference:
        seen.append(value)
        return Reference(1, True)

    assert crossed(wire.Itself(error), refer) == Reference(1, False)
    assert seen == [error]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Number(7), 7),
        (Text("ab"), "ab"),
        (Real(0.5), 0.5),
        (Data(b"ab"), b"ab"),
        (Row((1, 2)), (1, 2)),
        (Half(0.5), 0.5),
    ],
)
def test_an_object_of_a_plain_types_subclass_becomes_plain(value, plain):
    assert alike(crossed(value), plain)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize("value", [Colour.RED, Level.LOW, Point(1, 2), OrderedDict(), object(), len, int])
def test_all_else_stays_and_a_reference_crosses(value):
    seen = []

    def refer(value: Any) -> Reference:
        seen.append(value)
        return Reference(5, True, "class", "a.B")

    assert crossed([value], refer) == [Reference(5, False, "class", "a.B")]
    assert seen == [value]


def test_a_reference_to_an_object_of_the_other_side_is_its_own_there():
    assert crossed(object(), lambda value: Reference(3, False)) == Reference(3, True)


@pytest.mark.parametrize("make", [lambda x: [x], lambda x: (x,), lambda x: {1: x}, lambda x: frozenset([x])])
def test_what_is_too_deep_is_refused_by_the_side_that_sends(make):
    value: Any = 1
    for _ in range(wire.DEEPEST):
        value = make(value)
    assert crossed(value) == value
    with pytest.raises(WireError, match="deep"):
        crossed(make(make(value)))


def test_what_holds_itself_is_refused():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(WireError, match="deep"):
        crossed(value)


def test_what_is_too_large_is_refused_before_it_is_packed(monkeypatch):
    monkeypatch.setattr(wire, "MOST_BYTES", 1000)
    assert crossed([0] * 900) == [0] * 900
    for value in ([0] * 1001, "x" * 1001, b"x" * 1001, np.zeros(126), list("ab" * 501)):
        with pytest.raises(WireError, match="more than 1,000"):
            crossed(value)
    with pytest.raises(WireError, match="1,000 are allowed"):  # its items are few, and long
        crossed([0.5] * 900)


def test_a_long_integer_is_refused():
    longest = 8 * wire.LONGEST_INTEGER - 1
    assert crossed((1 << longest) - 1) == (1 << longest) - 1
    with pytest.raises(WireError, match="integer"):
        crossed(1 << longest)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused_or_are_plain(data):
    try:
        value = read(data)
    except WireError:
        return
    assert type(value) in (
        type(None),
        bool,
        int,
        float,
        str,
        bytes,
        tuple,
        frozenset,
        slice,
        type(...),
        Reference,
        *MUTABLE,
    )


HEAD = [0, True, False]  # of a container: number, whose, changed
FORGED = {
    "a tag that there is not": [99, 1],
    "a tag that is no number": ["x"],
    "no tag": [],
    "a reference without a number": [wire._REFERENCE, "0", True, "object", "x"],
    "a reference with too few parts": [wire._REFERENCE, 0, True],
    "a container without a number": [wire._LIST, None, True, False, 1],
    "a dict with half a pair": [wire._DICT, *HEAD, 1],
    "a dict with a list as a key": [wire._DICT, *HEAD, [wire._LIST, *HEAD], 1],
    "a set of lists": [wire._SET, *HEAD, [wire._LIST, *HEAD]],
    "an array of objects": [wire._ARRAY, *HEAD, "|O", [1], True, b"12345678"],
    "an array of another size": [wire._ARRAY, *HEAD, "<f4", [3], True, b"1234"],
    "an array of a negative size": [wire._ARRAY, *HEAD, "<f4", [-1], True, b"1234"],
    "an array whose shape is no list": [wire._ARRAY, *HEAD, "<f4", 1, True, b"1234"],
    "an array of a dtype that is no name": [wire._ARRAY, *HEAD, 4, [1], True, b"1234"],
    "an array with a part too many": [wire._ARRAY, *HEAD, "<f4", [1], True, b"1234", 1],
    "a scalar without content": [wire._SCALAR, "<f4", b""],
    "a scalar of a dtype of objects": [wire._SCALAR, "|O", b"12345678"],
    "a slice of two": [wire._SLICE, 1, 2],
    "an integer that is no bytes": [wire._INT, "12"],
    "an integer that is too long": [wire._INT, b"1" * 5000],
    "a map": {"a": 1},
    "an extension": msgpack.ExtType(1, b"x"),
    "a time": msgpack.Timestamp(1),
}


@pytest.mark.parametrize("form", FORGED.values(), ids=FORGED)
def test_a_forged_message_is_refused(form):
    with pytest.raises(WireError):
        read(msgpack.packb(form))


def test_nesting_to_a_depth_of_100_000_is_refused():
    with pytest.raises(WireError):
        read(b"\x92\x00" * 100_000 + b"\xc0")


@pytest.mark.parametrize("head", [[wire._SET, *HEAD], [wire._DICT, *HEAD], [wire._FROZENSET]])
def test_many_keys_are_refused(head):
    keys = [*range(wire.MOST_KEYS)]
    read(msgpack.packb([*head, *keys]))
    with pytest.raises(WireError, match="keys"):
        read(msgpack.packb([*head, *keys, 0, 1]))


def test_a_list_of_too_many_items_is_refused(monkeypatch):
    monkeypatch.setattr(wire, "MOST_ITEMS", 100)
    with pytest.raises(WireError):
        read(msgpack.packb([wire._LIST, *HEAD, *range(100)]))


def test_a_message_that_is_too_long_is_refused_unread(monkeypatch):
    monkeypatch.setattr(wire, "MOST_BYTES", 10)
    with pytest.raises(WireError, match="10 are allowed"):
        read(msgpack.packb("x" * 20))
