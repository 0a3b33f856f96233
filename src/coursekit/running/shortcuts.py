"""Notices calls in the learner's code that do a task's work, such as torch.softmax in the task on softmax.

The calls go on as before, and the task stays passed: the board only says a word about it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from coursekit.manifest import Task
from coursekit.running.noticed_calls import NoticedCalls
from coursekit.running.places import Places

SHORTCUTS_KEY = pytest.StashKey[tuple[str, ...]]()


class Shortcuts:
    """A plugin that notes, test by test, which shortcuts of its task the learner's code takes."""

    def __init__(self, places: Places, task_of: Callable[[pytest.Item], Task | None]) -> None:
        self._task_of = task_of
        self._wanted: frozenset[str] = frozenset()
        self._taken: set[str] = set()
        self._calls = NoticedCalls(places.is_learners, self._note)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Replace the calls before any of the learner's modules is imported and takes them over by name."""
        tasks = [task for item in session.items if (task := self._task_of(item)) is not None]
        self._calls.install({name for task in tasks for name in task.shortcuts})

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
        self._calls.remove()

    def _note(self, name: str) -> None:
        if name in self._wanted:
            self._taken.add(name)
