"""Puts a call that notices in the place of a function, such as torch.softmax where the task is to write it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any


class NoticedCalls:
    """Functions and classes whose calls are told; they go on as before.

    Only a call that stands in the learner's own files counts, not one by a test, its oracle or a framework.
    """

    def __init__(self, is_learners: Callable[[str], bool], tell: Callable[[str], object]) -> None:
        """Nothing is replaced yet.

        Args:
            is_learners: whether a file is one of the learner's.
            tell: is given the dotted name of each call.
        """
        self._is_learners, self._tell = is_learners, tell
        self._replaced: list[tuple[Any, str, Any]] = []

    def install(self, names: Iterable[str], deep: bool = False) -> None:
        """Put a call that notices in the place of each of these; one that isn't there is left out.

        To be done before a learner's module takes the function over by name.

        Args:
            names: dotted names.
            deep: whether torch's inner names of a function are replaced, too; they tell the outer one.
        """
        for name in sorted(names):
            for place in (name, *(inner_names(name) if deep else ())):
                found = find(place)
                if found is not None:
                    self._replace(name, *found)

    def remove(self) -> None:
        """Put everything back."""
        for owner, attribute, own in reversed(self._replaced):
            if own is None:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, own)
        self._replaced.clear()

    def _replace(self, name: str, owner: Any, attribute: str) -> None:
        own = vars(owner).get(attribute)  # None: a class has it from another class
        call = getattr(owner, attribute)
        if hasattr(call, "overloads"):
            setattr(
                owner, attribute, _Operator(call, lambda inner, depth: self._noticing(name, inner, depth))
            )
        else:
            setattr(owner, attribute, self._noticing(name, call))
        self._replaced.append((owner, attribute, own))

    def _noticing(self, name: str, call: Callable[..., Any], depth: int = 1) -> Callable[..., Any]:
        """The call that notices; ``depth`` frames above its own is the one that may be the learner's."""

        def noticing(*arguments: Any, **options: Any) -> Any:
            if self._is_learners(sys._getframe(depth).f_code.co_filename):
                self._tell(name)
            return call(*arguments, **options)

        # Not `functools.wraps`: its `__wrapped__` would lead around the notice.
        noticing.__name__, noticing.__doc__ = getattr(call, "__name__", name), call.__doc__
        return noticing


class _Operator:
    """Stands for an operator of `torch.ops`, which has a form for each kind of arguments, such as `softmax.int`."""

    def __init__(self, operator: Any, noticing: Callable[[Any, int], Callable[..., Any]]) -> None:
        self._operator, self._noticing = operator, noticing

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._noticing(self._operator, 2)(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._operator, name)
        return self._noticing(found, 1) if name in self._operator.overloads() else found


def inner_names(name: str) -> tuple[str, ...]:
    """Where torch keeps what stands behind one of its functions."""
    if not name.startswith("torch."):
        return ()
    last = name.rpartition(".")[2]
    return (f"torch._C._nn.{last}", f"torch.ops.aten.{last}")


def find(name: str) -> tuple[Any, str] | None:
    """Where a call lies: its module or class, and the attribute. Of a class that is its `__init__`.

    None where it isn't there, or where a class has no `__init__` of its own.
    """
    *path, attribute = name.split(".")
    owner: Any = _module(path[0])
    for depth, part in enumerate(path[1:], 2):
        owner = getattr(owner, part, None) or _module(".".join(path[:depth]))
    found = getattr(owner, attribute, None)
    if isinstance(found, type):
        return (found, "__init__") if getattr(found, "__init__", None) is not object.__init__ else None
    return None if found is None else (owner, attribute)


def _module(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None
