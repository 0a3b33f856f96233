"""One end of the link: what it has handed out, what it holds of the other side, and the connection."""

from __future__ import annotations

import json
import re
import threading
import weakref
from collections import deque
from types import FunctionType
from typing import IO, Any

import numpy as np

from grading.link import derived
from grading.link.errors import (
    LeftByCode,
    error_classes,
    known,
    mark,
    marked,
    read_record,
    record_of,
    stand_in,
    traceback_through,
)
from grading.link.kinds import ARRAY, ATTRIBUTE, CLASS, ERROR_CLASS, FUNCTION, METHOD, kind_of
from grading.link.lanes import Lanes, RemoteError
from grading.link.methods import Methods
from grading.link.operations import Operations, kinds
from grading.link.remote import Remote, RemoteClass, RemoteMethod, StandsFor
from grading.link.shared import Shared
from grading.link.side import Side
from grading.link.table import Table
from grading.link.wire import Reference, WireError, decode, encode

_CLASSES = (CLASS, ERROR_CLASS)
_REMOTE = "remote"
_ANSWERS = {
    "framework": str,
    "dtype_name": str,
    "to_numpy": np.ndarray,
    "share_memory": bool,
    "span": tuple,
    "pending_operations": int,
}
_NAME = re.compile(r"[^\W\d]\w{0,99}")


class End:
    """One end of the link."""

    def __init__(
        self, incoming: IO[bytes], outgoing: IO[bytes], operations: Operations, grader: bool
    ) -> None:
        """Begin to listen.

        Args:
            incoming, outgoing: see :class:`Lanes`.
            operations: what the other side may do here.
            grader: whether this is the grader's end.
        """
        self._operations, self._grader = operations, grader
        self._table, self._shared = Table(), Shared()
        self._held: weakref.WeakValueDictionary[int, Remote] = weakref.WeakValueDictionary()
        self._given_back: deque[tuple[int, int]] = deque()
        self._classes: dict[int, type] = {}
        self._shapes: dict[str, type[Remote]] = {}
        self._derived: list[type[Remote]] = []
        self._methods = Methods(lambda remote, name: self.call("getattr", remote, name))
        self._errors: dict[str, type[BaseException]] = {}
        self._lock = threading.RLock()
        side = Side(self._pack, self._unpack, operations)
        self._lanes = Lanes(incoming, outgoing, side, grader)

    def call(self, operation: str, *arguments: Any) -> Any:
        """Let the other side carry out an operation.

        Raises:
            Gone: the other side has ended.
            Exception: what it has raised, as an exception of this side; one that came from here is that very one.
        """
        try:
            return self._lanes.call(operation, *arguments)
        except RemoteError as failed:
            error = failed.error
        raise error

    def read(self, remote: Remote, name: str) -> Any:
        """An attribute of an object of the other side; which ones are methods is asked once a class."""
        method = self._methods.take(remote, name)
        if method is not None:
            return method
        value = self.call("getattr", remote, name)
        if isinstance(value, Remote) and value._kind == METHOD:
            self._methods.note(remote, name)
        return value

    def write(self, operation: str, remote: Remote, *arguments: Any) -> None:
        """Set or delete an attribute there."""
        self._methods.before_write(arguments[0])
        self.call(operation, remote, *arguments)

    def ask(self, question: str, remote: Remote, others: tuple[Any, ...]) -> Any:
        """What a function of :mod:`coursekit.arrays` says about an object of the other side."""
        if question == "framework" and remote._kind != ARRAY:
            return None
        answer = self.call(question, remote, *others)
        if not isinstance(answer, _ANSWERS[question]):
            raise TypeError(f"{question} gave a {type(answer).__name__}")
        return answer

    def derive(self, metaclass: type, name: str, bases: tuple[Any, ...], namespace: dict[str, Any]) -> Any:
        """A class that derives from classes of the other side; see :mod:`grading.link.derived`."""
        made = derived.new_class(self.call, metaclass, name, bases, namespace)
        number = len(self._derived)
        there = self.call("derive", name, bases, derived.members(namespace), number)
        type.__setattr__(made, "_remote", there._remote)
        self._classes[there._remote._number] = made
        self._derived.append(derived.instances(name, made))
        return made

    def serve(self) -> None:
        """Serve the other side in this thread, until it has ended."""
        self._lanes.serve_first()

    def close(self) -> None:
        self._lanes.close()

    @property
    def gone(self) -> str | None:
        """Why there is no other side any more; None while there is one."""
        return self._lanes.gone

    def give_back(self, number: int, references: int) -> None:
        """A :class:`Remote` has gone: the other side is told with the next message."""
        self._given_back.append((number, references))

    def _pack(self, message: tuple[Any, ...]) -> bytes:
        with self._lock:
            given_back = tuple(self._given_back.popleft() for _ in range(len(self._given_back)))
            changes = tuple(self._shared.changes())
            self._shared.forget()  # not before: what is dropped here may have been changed first
            return encode((given_back, changes, message), self._refer, self._shared.share, record_of)

    def _unpack(self, data: bytes) -> tuple[Any, ...]:
        with self._lock:
            parts = decode(data, self._find, self._shared.receive, self._error_of)
            if type(parts) is not tuple or [type(part) for part in parts] != [tuple, tuple, tuple]:
                raise WireError("a message without its three parts")
            given_back, _, message = parts
            for number, references in given_back:
                self._table.release(number, references)
            return message

    def _refer(self, value: Any) -> Reference:
        if isinstance(value, Remote):
            return Reference(value._number, False)
        if isinstance(value, RemoteClass | StandsFor):
            return self._refer(value._remote)
        if isinstance(value, RemoteMethod):
            if value._held is not None:
                return self._refer(value._held)
            return Reference(value._owner._number, False, ATTRIBUTE, value._name)
        if type(value) is FunctionType and _REMOTE in value.__dict__:
            return self._refer(value.__dict__[_REMOTE])
        record = marked(value) if isinstance(value, BaseException) else None
        if record is not None:
            return self._refer(record.error)
        kind, made = kind_of(value), type(value)
        # Of a class all that the other side needs: it can't ask in the middle of a message.
        name = json.dumps(kinds(value)) if kind in _CLASSES else f"{made.__module__}.{made.__qualname__}"
        return Reference(self._table.number(value), True, kind, name)

    def _find(self, reference: Reference) -> Any:
        if not reference.ours:
            return self._theirs(reference)
        found = self._table[reference.number]
        return self._operations.read(found, reference.name) if reference.kind == ATTRIBUTE else found

    def _theirs(self, reference: Reference) -> Any:
        """What stands for an object of the other side."""
        found = self._held.get(reference.number)
        if found is None or not found._count:
            found = self._shape(reference)(self, reference.number, reference.kind)
            self._held[reference.number] = found
        else:
            object.__setattr__(found, "_count", found._count + 1)
        if reference.kind in _CLASSES:
            return self._class(found, reference)
        return _function(found) if reference.kind == FUNCTION and not self._grader else found

    def _shape(self, reference: Reference) -> type[Remote]:
        """A class of this side with the name of the other side's, for messages."""
        if reference.kind.startswith(derived.KIND):
            return self._derived[int(reference.kind.removeprefix(derived.KIND))]
        if reference.name not in self._shapes:
            name = "type" if reference.kind in _CLASSES else reference.name.rpartition(".")[2]
            name = name if _NAME.fullmatch(name) else "object"
            self._shapes[reference.name] = type(name, (Remote,), {"__slots__": ()})
        return self._shapes[reference.name]

    def _class(self, remote: Remote, reference: Reference) -> type:
        if reference.number not in self._classes:
            chain = [(str(name), tuple(map(str, bases))) for name, bases in json.loads(reference.name)]
            if reference.kind == ERROR_CLASS:
                made: type = self._error_class(chain[0][0], error_classes(chain))
            else:
                module, _, name = chain[0][0].rpartition(".")
                made = type.__new__(RemoteClass, name, (), {"__module__": module})
            if isinstance(made, RemoteClass):
                type.__setattr__(made, "_remote", remote)
            self._classes[reference.number] = made
        return self._classes[reference.number]

    def _error_class(self, name: str, bases: dict[str, tuple[str, ...]]) -> type[BaseException]:
        """The class of this side for one of the other, by its name and the :func:`error_classes` above it."""
        own = known(name, self._grader)
        if own is not None:
            return own
        if name not in self._errors:
            above = [self._error_class(base, bases) for base in bases.get(name, ()) if base in bases]
            self._errors[name] = stand_in(name, tuple(above) or (LeftByCode,))
        return self._errors[name]

    def _error_of(self, values: Any) -> BaseException:
        """The exception of this side for a record of the other."""
        record = read_record(values)
        if isinstance(record.error, BaseException):
            return record.error  # it comes from here
        kind = record.kind
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            kind = self._error_class(record.kinds[0][0], error_classes(record.kinds))
        try:
            made = kind(*record.arguments)
        except Exception:  # Python's own have conditions, such as UnicodeDecodeError
            made = RuntimeError(record.message)
        mark(made, record)
        made.__cause__ = record.cause
        return made.with_traceback(traceback_through(made, record.frames))


def _function(remote: Remote) -> Any:
    """A function of the grader's as one that a class of the learner's can hold as a method."""

    def function(*arguments: Any, **options: Any) -> Any:
        return remote(*arguments, **options)

    function.__dict__[_REMOTE] = remote
    return function
