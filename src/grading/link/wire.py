"""What crosses between the grader and the process that runs a learner's code, as bytes, and what it may cost.

Only plain values have a form of their own. Every other object stays where it is, and a :class:`Reference` to it
crosses. So nothing that comes out of :func:`decode` has a method that the other side has written. Lists, dicts, sets
and NumPy arrays carry a number, so that both sides can speak of the same one: see :mod:`grading.link.shared`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgpack
import numpy as np

MOST_BYTES = 128 * 2**20
"""Of a message: the embedding of the default model in float32, and some."""
MOST_ITEMS = 2_000_000
"""Of a list or a tuple."""
MOST_KEYS = 20_000
"""Of a dict or a set: keys that were chosen to collide take time by the square of their number."""
DEEPEST = 100
"""How many containers may lie in one another."""
LONGEST_INTEGER = 4096
"""Bytes. Arithmetic with longer ones takes long."""
MUTABLE = (list, dict, set, np.ndarray)
"""What is changed in place, and so has a number on the wire."""
_TUPLE, _FROZENSET, _SLICE, _INT, _SCALAR, _ELLIPSIS, _REFERENCE, _LIST, _SET, _DICT, _ARRAY, _ERROR = range(
    12
)
_NUMBERED: dict[type, int] = {list: _LIST, set: _SET, dict: _DICT}
_DTYPES = "biufc"  # bool, integers, floats, complex numbers


class WireError(ValueError):
    """A message is not one: it is too large or too deep, or isn't in the form."""


@dataclass(frozen=True)
class Itself:
    """An exception that crosses as a reference to it, and not as its record."""

    error: BaseException


@dataclass(frozen=True)
class Reference:
    """An object that stays on its own side; ``ours`` says whether that is the side that has decoded it.

    ``kind`` and ``name`` tell what it is ("class", "array", "object"; the name of its class).
    """

    number: int
    ours: bool
    kind: str = "object"
    name: str = "object"


Refer = Callable[[Any], Reference]
Share = Callable[[Any], tuple[int, bool, bool]]
"""The number of a container; whether the side that encodes has given it; whether it has changed the content."""
Record = Callable[[BaseException], tuple[Any, ...]]
Find = Callable[[Reference], Any]
Remake = Callable[[Any], BaseException]
Receive = Callable[[int, bool, bool, Any], Any]
"""Gives this side's container: its number, whether this side has given it, whether the other side has changed the
content, and the content."""


def encode(value: Any, refer: Refer, share: Share, record: Record) -> bytes:
    """The bytes of a value.

    Args:
        value: anything.
        refer: gives the reference for an object without a form of its own; ``ours`` is True for one of the side
            that encodes.
        share: see :data:`Share`.
        record: says of an exception what the other side needs to make one.

    Raises:
        WireError: it is too deep, or its bytes are too many.
    """
    data = bytes(msgpack.packb(_Encoder(refer, share, record).form(value, 0)))
    if len(data) > MOST_BYTES:
        raise WireError(f"a message of {len(data):,} bytes; {MOST_BYTES:,} are allowed")
    return data


class _Encoder:
    """Turns values into what msgpack knows. Each list of its begins with the number of a kind."""

    def __init__(self, refer: Refer, share: Share, record: Record) -> None:
        self._refer, self._share, self._record = refer, share, record
        self._left = MOST_BYTES  # so that a value of 10⁹ elements ends early

    def form(self, value: Any, depth: int) -> Any:
        """The same in types that msgpack has. Types are exact: a subclass may have overridden anything."""
        kind = type(value)
        self._spend(len(value) if kind in (str, bytes) else 1)
        if value is None or kind in (bool, float, str, bytes):
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**64 else [_INT, _long(value)]
        if depth > DEEPEST:
            raise WireError(f"containers in containers, more than {DEEPEST} deep")
        if kind is tuple or kind is frozenset:
            tag = _TUPLE if kind is tuple else _FROZENSET
            return [tag, *[self.form(each, depth + 1) for each in value]]
        if kind in MUTABLE:
            return self._container(value, kind, depth + 1)
        if kind is slice:
            return [_SLICE, *[self.form(each, depth + 1) for each in (value.start, value.stop, value.step)]]
        if value is Ellipsis:
            return [_ELLIPSIS]
        if isinstance(value, np.generic) and kind.__module__ == "numpy" and value.dtype.kind in _DTYPES:
            return [_SCALAR, value.dtype.str, value.tobytes()]
        plain = _base_value(value)
        if plain is not None:
            return self.form(plain, depth)
        if isinstance(value, BaseException):
            return [_ERROR, self.form(self._record(value), depth + 1)]
        found = self._refer(value.error if kind is Itself else value)
        return [_REFERENCE, found.number, not found.ours, found.kind, found.name]

    def _container(self, value: Any, kind: type, depth: int) -> list[Any]:
        if kind is np.ndarray and value.dtype.kind not in _DTYPES:
            raise WireError(f"a NumPy array of {value.dtype} can't cross; only numbers and bools can")
        number, ours, changed = self._share(value)
        if kind is np.ndarray:
            self._spend(value.nbytes)
            data = np.ascontiguousarray(value).tobytes()
            form = [value.dtype.str, value.shape, value.flags.writeable, data]
            return [_ARRAY, number, not ours, changed, *form]
        items = [part for pair in value.items() for part in pair] if kind is dict else value
        return [_NUMBERED[kind], number, not ours, changed, *[self.form(each, depth) for each in items]]

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise WireError(f"a message of more than {MOST_BYTES:,} bytes")


def _base_value(value: Any) -> Any:
    """The plain number, text or tuple of a subclass's object; None for all else, and for members of an Enum."""
    if isinstance(value, Enum):
        return None
    if isinstance(value, tuple):  # torch.Size; a named tuple is an object with attributes
        return None if hasattr(value, "_fields") else tuple(tuple.__iter__(value))
    if isinstance(value, int):
        return int.__index__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, str):
        return str.__str__(value)
    return bytes.__getitem__(value, slice(None)) if isinstance(value, bytes) else None


def _long(value: int) -> bytes:
    size = value.bit_length() // 8 + 1
    if size > LONGEST_INTEGER:
        raise WireError(f"an integer of {size:,} bytes; {LONGEST_INTEGER:,} are allowed")
    return value.to_bytes(size, "little", signed=True)


def decode(data: bytes, find: Find, receive: Receive, remake: Remake) -> Any:
    """The value of some bytes, whatever they are; containers are new, and of exact types.

    Args:
        data: as :func:`encode` gives them.
        find: gives what stands for a reference on this side.
        receive: see :data:`Receive`.
        remake: makes an exception of a record.

    Raises:
        WireError: they aren't in the form.
    """
    if len(data) > MOST_BYTES:
        raise WireError(f"a message of {len(data):,} bytes; {MOST_BYTES:,} are allowed")
    try:
        form = msgpack.unpackb(data, max_array_len=MOST_ITEMS, max_map_len=0, max_ext_len=0)
        return _Decoder(find, receive, remake).value(form)
    except WireError:
        raise
    except Exception as error:  # msgpack has many, and some are those of Python's own types
        raise WireError(f"not a message: {type(error).__name__}: {error}") from error


class _Decoder:
    def __init__(self, find: Find, receive: Receive, remake: Remake) -> None:
        self._find, self._receive, self._remake = find, receive, remake

    def value(self, form: Any) -> Any:
        if type(form) is not list:
            return form
        tag, *parts = form
        if tag == _TUPLE:
            return tuple([self.value(each) for each in parts])
        if tag == _REFERENCE and [type(each) for each in parts] == [int, bool, str, str]:
            return self._find(Reference(*parts))
        if tag in (_LIST, _SET, _DICT, _ARRAY) and [type(each) for each in parts[:3]] == [int, bool, bool]:
            number, ours, changed, *content = parts
            return self._receive(number, ours, changed, self._content(tag, content))
        return self._immutable(tag, parts)

    def _immutable(self, tag: Any, parts: list[Any]) -> Any:
        if tag == _ERROR and len(parts) == 1:
            return self._remake(self.value(parts[0]))
        if tag == _FROZENSET:
            return frozenset(self.value(each) for each in _few(parts))
        if tag == _SLICE and len(parts) == 3:
            return slice(*map(self.value, parts))
        if tag == _ELLIPSIS:
            return ...
        if tag == _INT and type(parts[0]) is bytes and len(parts[0]) <= LONGEST_INTEGER:
            return int.from_bytes(parts[0], "little", signed=True)
        if tag == _SCALAR and len(parts) == 2:
            return np.frombuffer(parts[1], _dtype(parts[0]))[0]
        raise WireError(f"a value of an unknown kind {tag!r:.100}")

    def _content(self, tag: int, parts: list[Any]) -> Any:
        if tag == _ARRAY:
            dtype, shape, writeable, data = parts
            array = np.frombuffer(data, _dtype(dtype)).reshape(_shape(shape)).copy()
            array.flags.writeable = writeable is True
            return array
        items = [self.value(each) for each in (parts if tag == _LIST else _few(parts))]
        if tag == _LIST:
            return items
        return set(items) if tag == _SET else dict(zip(items[::2], items[1::2], strict=True))


def _few(items: list[Any]) -> list[Any]:
    if len(items) > MOST_KEYS:
        raise WireError(f"{len(items):,} keys; {MOST_KEYS:,} are allowed")
    return items


def _dtype(name: Any) -> np.dtype:
    dtype = np.dtype(name) if type(name) is str else None
    if dtype is None or dtype.kind not in _DTYPES:
        raise WireError(f"numbers of dtype {name!r:.100}")
    return dtype


def _shape(shape: Any) -> tuple[int, ...]:
    if type(shape) is not list or not all(type(each) is int and each >= 0 for each in shape):
        raise WireError(f"an array of shape {shape!r:.100}")
    return tuple(shape)
