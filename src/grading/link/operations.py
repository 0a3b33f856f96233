"""What one side may ask the other to do with its objects."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from coursekit import arrays
from grading.link import derived
from grading.link.remote import BINARY, COMPARISONS, UNARY

LONGEST_TEXT = 20_000
_OPERATORS = frozenset((*BINARY, *UNARY, *COMPARISONS))


class Operations:
    """Operations by name, all of them allowed: what the worker lets the grader do."""

    def __init__(self, more: dict[str, Callable[..., Any]] | None = None) -> None:
        """Args: more: further operations by name."""
        self._by_name: dict[str, Callable[..., Any]] = {
            "getattr": self.read,
            "setattr": self.write,
            "delattr": self.delete,
            "call": lambda target, arguments, options: target(*arguments, **dict(options)),
            "call method": lambda target, name, arguments, options: self.read(target, name)(
                *arguments, **dict(options)
            ),
            "iter": iter,
            "next": next,
            "len": len,
            "bool": bool,
            "int": int,
            "float": float,
            "index": operator.index,
            "getitem": operator.getitem,
            "setitem": operator.setitem,
            "delitem": operator.delitem,
            "contains": operator.contains,
            "enter": lambda target: type(target).__enter__(target),
            "exit": _leave,
            "repr": lambda target: repr(target)[:LONGEST_TEXT],
            "str": lambda target: str(target)[:LONGEST_TEXT],
            "operator": _operate,
            "isinstance": isinstance,
            "issubclass": issubclass,
            "names": lambda target: tuple(dir(target)),
            "derive": derived.derive,
            "call base": lambda base, name, arguments, options: getattr(base, name)(
                *arguments, **dict(options)
            ),
            "framework": arrays.framework,
            "dtype_name": arrays.dtype_name,
            "to_numpy": arrays.to_numpy,
            "pending_operations": arrays.pending_operations,
            "share_memory": arrays.share_memory,
            "span": arrays.span,
            **(more or {}),
        }

    def __call__(self, name: str, arguments: Any) -> Any:
        """Carry one out.

        Raises:
            TypeError: there is no such operation.
        """
        if name not in self._by_name:
            raise TypeError(f"there is no operation {name!r}")
        return self._by_name[name](*arguments)

    def read(self, target: Any, name: str) -> Any:
        return getattr(target, name)

    def write(self, target: Any, name: str, value: Any) -> None:
        setattr(target, name, value)

    def delete(self, target: Any, name: str) -> None:
        delattr(target, name)


def kinds(target: type) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The full names of a class and of all above it, each with the names of its bases."""
    return tuple((_full_name(kind), tuple(map(_full_name, kind.__bases__))) for kind in target.__mro__)


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _operate(name: str, *operands: Any) -> Any:
    if name not in _OPERATORS:
        raise TypeError(f"there is no operator {name!r}")
    return getattr(operator, name)(*operands)


def _leave(target: Any, error: BaseException | None) -> bool:
    """Whether the error ends here: `__exit__` may answer with anything that counts as true."""
    if error is None:
        return bool(type(target).__exit__(target, None, None, None))
    return bool(type(target).__exit__(target, type(error), error, error.__traceback__))


class Granted(Operations):
    """What the grader lets the worker do with the objects that a test hands in, such as a fake model or an observer.

    It may call them, go through them, and read and write attributes of the names that it is granted; it can't look
    into functions, classes and modules, from which a way leads to all that the grader knows.
    """

    _CLOSED = (FunctionType, BuiltinFunctionType, MethodType, ModuleType, type)
    _ALLOWED = (
        *(
            "getattr",
            "setattr",
            "delattr",
            "call",
            "call method",
            "iter",
            "next",
            "len",
            "bool",
            "int",
            "float",
            "index",
        ),
        *("getitem", "setitem", "delitem", "contains", "enter", "exit", "operator"),
    )

    def __init__(self, names: frozenset[str], more: dict[str, Callable[..., Any]] | None = None) -> None:
        """Args: names: of attributes; more: further operations by name."""
        super().__init__()
        self._names = names
        self._by_name = {name: self._by_name[name] for name in self._ALLOWED}
        self._by_name |= {"repr": _shown, "str": _shown, **(more or {})}

    def read(self, target: Any, name: str) -> Any:
        self._require(target, name)
        return getattr(target, name)

    def write(self, target: Any, name: str, value: Any) -> None:
        self._require(target, name)
        setattr(target, name, value)

    def delete(self, target: Any, name: str) -> None:
        self._require(target, name)
        delattr(target, name)

    def _require(self, target: Any, name: str) -> None:
        if name.startswith("_") or name not in self._names or isinstance(target, self._CLOSED):
            raise AttributeError(f"{type(target).__name__!r} object has no attribute {name!r}", name=name)


def _shown(target: Any) -> str:
    return str(target)[:LONGEST_TEXT] if isinstance(target, BaseException) else f"<{type(target).__name__}>"
