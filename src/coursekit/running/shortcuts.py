"""Notices calls in the learner's code that do a task's work, such as torch.softmax in the task on softmax.

The calls go on as before, and the task stays passed: the board only says a word about it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from coursekit.manifest import Task
from coursekit.running.places import Places

SHORTCUTS_KEY = pytest.StashKey[tuple[str, ...]]()


class Shortcuts:
    """A plugin that notes, test by test, which shortcuts of its task the learner's code takes.

    Only a call that stands in the learner's own files counts, not one by a test, its oracle or a framework.
    """

    def __init__(self, places: Places, task_of: Callable[[pytest.Item], Task | None]) -> None:
        self._places = places
        self._task_of = task_of
        self._wanted: frozenset[str] = frozenset()
        self._taken: set[str] = set()
        self._replaced: list[tuple[Any, str, Any]] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Replace the calls before any of the learner's modules is imported and takes them over by name."""
        tasks = [task for item in session.items if (task := self._task_of(item)) is not None]
        self.install({name for task in tasks for name in task.shortcuts})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        task = self._task_of(item)
        self._wanted, self._taken = frozenset(task.shortcuts if task else ()), set()
        try:
            yield
        finally:
            item.stash[SHORTCUTS_KEY] = tuple(sorted(self._taken))
            self._wanted = frozenset()

    def pytest_unconfigure(self) -> None:
        """Put everything back."""
        for owner, attribute, own in reversed(self._replaced):
            if own is None:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, own)
        self._replaced.clear()

    def install(self, names: Iterable[str]) -> None:
        """Put a call that notices in the place of each of these; one that isn't there is left out."""
        for name in sorted(names):
            found = find(name)
            if found is not None:
                owner, attribute = found
                own = vars(owner).get(attribute)  # None: a class has it from another class
                setattr(owner, attribute, self._noticing(name, getattr(owner, attribute)))
                self._replaced.append((owner, attribute, own))

    def _noticing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def noticing(*arguments: Any, **options: Any) -> Any:
            if name in self._wanted and self._places.is_learners(sys._getframe(1).f_code.co_filename):
                self._taken.add(name)
            return call(*arguments, **options)

        return noticing


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
