"""Errors that cross: as a record of plain values on the way, and as an exception of this side on arrival."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

from coursekit.checking.comparison import CheckFailed
from grading.link.operations import kinds
from grading.link.remote import RemoteClass
from grading.link.wire import Itself, WireError

LONGEST_MESSAGE = 20_000
MOST_FRAMES = 30
MOST_LINES = 1_000_000
_RECORD = "record of the other side"
"""A key in an exception's `__dict__`; no attribute has such a name."""
_CODE = compile("raise error", "", "exec")


class LeftByCode(Exception):
    """The code of the other side tried to end the program, or the test: sys.exit, pytest.skip and the like."""

    @property
    def ends_program(self) -> bool:
        """Whether it was a `SystemExit`."""
        record = marked(self)
        return record is not None and record.kinds[0][0] == "builtins.SystemExit"


class Record(NamedTuple):
    """An error as values that can cross.

    ``error`` and ``kind`` are the exception and its class; ``kinds`` the names of that class and those above it;
    ``frames`` the file, line and function of each frame, the innermost last; ``cause`` its `__cause__`.
    """

    error: Any
    kind: Any
    kinds: tuple[tuple[str, tuple[str, ...]], ...]
    message: str
    arguments: tuple[Any, ...]
    frames: tuple[tuple[str, int, str], ...]
    cause: BaseException | None


def record_of(error: BaseException) -> tuple[Any, ...]:
    """The record of an error, as a plain tuple."""
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    return tuple(
        Record(
            Itself(error),
            type(error),
            kinds(type(error)),
            _message(error),
            tuple(error.args),
            tuple((frame.filename, frame.lineno or 0, frame.name) for frame in frames[-MOST_FRAMES:]),
            error.__cause__,
        )
    )


def read_record(values: Any) -> Record:
    """The record that has crossed.

    Raises:
        WireError: it is none.
    """
    types = (object, object, tuple, str, tuple, tuple, BaseException | None)
    if type(values) is not tuple or len(values) != len(types):
        raise WireError("an error without its record")
    if not all(isinstance(value, kind) for value, kind in zip(values, types, strict=True)):
        raise WireError("an error with a record of another form")
    return Record(*values)


def mark(error: BaseException, record: Record) -> None:
    """Note in an exception of this side which one of the other it stands for."""
    error.__dict__[_RECORD] = record


def marked(error: BaseException) -> Record | None:
    """What :func:`mark` has noted."""
    return error.__dict__.get(_RECORD)


_SHARED = ("builtins", "asyncio.exceptions", "concurrent.futures._base", "dataclasses", "queue")
"""Modules of Python whose errors are on both sides."""


def known(name: str, grader: bool) -> type[BaseException] | None:
    """The exception of a full name that this side has, too.

    Args:
        name: as "builtins.ValueError".
        grader: whether this is the grader's side: there, an error that would end a program is :class:`LeftByCode`,
            and only errors of Python itself and of the checks are known.
    """
    if name == f"{CheckFailed.__module__}.{CheckFailed.__qualname__}":
        return CheckFailed
    module, _, short = name.rpartition(".")
    if grader and module not in _SHARED:
        return None
    found = getattr(sys.modules.get(module), short, None)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        return None
    return LeftByCode if grader and not issubclass(found, Exception) else found


def error_classes(chain: Sequence[tuple[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
    """Of a class and all above it, as :func:`kinds` gives them, those of errors: others have no stand-in."""
    found: dict[str, tuple[str, ...]] = {"builtins.BaseException": ()}
    for name, bases in reversed(chain):
        if any(base in found for base in bases):
            found[name] = bases
    return found


def traceback_through(error: BaseException, frames: tuple[Any, ...]) -> TracebackType | None:
    """A traceback through lines of files, as if the error had come that way in this process.

    So what reads tracebacks finds the learner's file and line.
    """
    found: TracebackType | None = None
    for file, line, name in reversed(frames[-MOST_FRAMES:]):
        line = min(max(int(line), 1), MOST_LINES)
        code = _CODE.replace(co_filename=str(file), co_firstlineno=line, co_name=str(name))
        error.__traceback__ = None
        try:
            exec(code, {"error": error})
        except BaseException as raised:
            tip = raised.__traceback__
            while tip is not None and tip.tb_next is not None:
                tip = tip.tb_next
            if tip is not None:
                found = TracebackType(found, tip.tb_frame, tip.tb_lasti, tip.tb_lineno)
    return found


def stand_in(name: str, bases: tuple[type, ...]) -> type[BaseException]:
    """A class of exceptions of this side that stands for one of the other."""
    module, _, short = name.rpartition(".")
    namespace = {"__module__": module, "__str__": _shown, "__getattr__": _asked}
    made: Any = type.__new__(_ErrorClass, short, bases, namespace)
    return made


class _ErrorClass(RemoteClass):
    """Of exceptions: they are made, raised and caught by Python's own rules."""

    __dict__ = type.__dict__["__dict__"]  # type: ignore[misc]

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        return type.__call__(cls, *arguments, **options)

    def __instancecheck__(cls, value: Any) -> bool:
        return type.__instancecheck__(cls, value)

    def __subclasscheck__(cls, value: Any) -> bool:
        return type.__subclasscheck__(cls, value)


def _message(error: BaseException) -> str:
    try:
        return str(error)[:LONGEST_MESSAGE]
    except Exception as second:  # a __str__ of its own
        return f"its message can't be shown: {type(second).__name__}"


def _shown(self: BaseException) -> str:
    record = marked(self)
    return BaseException.__str__(self) if record is None else record.message


def _asked(self: BaseException, name: str) -> Any:
    record = marked(self)
    if record is None or name.startswith("__"):
        raise AttributeError(name)
    return getattr(record.error, name)
