"""Classes of the grader's that derive from the learner's, such as a cache that notes what it is asked.

The class itself is made on the learner's side. Its methods there call the functions that the grader's class statement
holds, which get the object as a :class:`Remote`. `super()` in these functions finds methods that call back.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from grading.link.remote import Remote, RemoteClass

NUMBER = "__derived__"
"""The attribute of such a class, on the learner's side, that tells it from the others."""
KIND = "derived "
_NOT_MEMBERS = ("__module__", "__qualname__", "__classcell__", "__firstlineno__", "__static_attributes__")
_SPECIAL = (
    "__init__",
    "__call__",
    "__len__",
    "__getitem__",
    "__setitem__",
    "__iter__",
    "__next__",
    "__enter__",
    "__exit__",
)
"""Names between double underscores that `super()` finds."""


def new_class(
    call: Callable[..., Any], metaclass: type, name: str, bases: tuple[Any, ...], namespace: dict[str, Any]
) -> Any:
    """The grader's side of the class."""
    above = tuple(_supers(call, metaclass, base) for base in bases)
    return type.__new__(metaclass, name, above, namespace)


def _supers(call: Callable[..., Any], metaclass: type, base: Any) -> Any:
    """A class above, whose methods call those of the learner's: what `super()` finds."""
    if not isinstance(base, RemoteClass):
        return base
    names = [name for name in call("names", base) if not name.startswith("__") or name in _SPECIAL]
    forwards: dict[str, Any] = {name: _forward(call, base, name) for name in names}
    return type.__new__(metaclass, base.__name__, (base,), forwards)


def _forward(call: Callable[..., Any], base: Any, name: str) -> Callable[..., Any]:
    def forward(*arguments: Any, **options: Any) -> Any:
        return call("call base", base, name, arguments, tuple(options.items()))

    return forward


def instances(name: str, made: Any) -> type[Remote]:
    """The class of what stands for an object of the class: it says that it is one, or `super()` would refuse it."""
    return type(name, (Remote,), {"__slots__": (), "__class__": property(lambda self: made)})


def members(namespace: dict[str, Any]) -> tuple[tuple[str, str, Any], ...]:
    """The functions and values of a class statement, as they cross: name, kind, value."""
    return tuple((key, *_member(value)) for key, value in namespace.items() if key not in _NOT_MEMBERS)


def _member(value: Any) -> tuple[str, Any]:
    if isinstance(value, types.FunctionType):
        return "method", value
    if isinstance(value, property):
        return "property", (value.fget, value.fset)
    if isinstance(value, staticmethod):
        return "static", value.__func__
    return "value", value


def derive(
    name: str, bases: tuple[type, ...], crossed: tuple[tuple[str, str, Any], ...], number: int
) -> type:
    """Make the class on the learner's side."""
    namespace: dict[str, Any] = {key: _made(kind, value) for key, kind, value in crossed}
    namespace[NUMBER] = number
    return types.new_class(name, bases, {}, lambda body: body.update(namespace))


def _made(kind: str, value: Any) -> Any:
    if kind == "value":
        return value
    if kind == "static":
        return staticmethod(lambda *arguments, **options: value(*arguments, **options))
    if kind == "property":
        return property(*[each and _method(each) for each in value])
    return _method(value)


def _method(function: Any) -> Any:
    def method(self: Any, *arguments: Any, **options: Any) -> Any:
        return function(self, *arguments, **options)

    return method
