"""Lists, dicts, sets and arrays that both sides hold: what one side changes in them, the other sees.

Each side has a copy of its own under one number. Before a message leaves, the content of every copy that was changed
since the last message goes ahead of it, and is put into the other side's copy in place. So a test that looks whether
a function leaves its arguments alone, or fills an array that it was given, works as if there were one process.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from grading.link.wire import WireError

_HELD_BY_ENTRY_ALONE = 2
"""What `sys.getrefcount` says of an object that only its :class:`_Entry` holds: one for that, one for asking."""


@dataclass
class _Entry:
    key: tuple[int, bool]
    value: Any
    snapshot: Any
    """A copy of the content when it was last equal on both sides; of an array its bytes."""


class Shared:
    """One side's copies, by number and by identity."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[int, bool], _Entry] = {}
        self._by_id: dict[int, _Entry] = {}
        self._changed: set[int] = set()
        self._next = 0

    def __len__(self) -> int:
        return len(self._by_key)

    def share(self, value: Any) -> tuple[int, bool, bool]:
        """A container as it crosses: its number, whether this side has given it, and whether its content is one of
        the :meth:`changes`; a new number where it has none."""
        entry = self._by_id.get(id(value))
        if entry is None:
            entry = self._keep((self._next, True), value)
            self._next += 1
        return (*entry.key, id(value) in self._changed)

    def changes(self) -> list[Any]:
        """The containers that were changed here since the last message; until the next call :meth:`share` says so."""
        found = []
        for entry in list(self._by_key.values()):
            if not _same(entry.value, entry.snapshot):
                entry.snapshot = _snapshot(entry.value)
                found.append(entry.value)
        self._changed = {id(value) for value in found}
        return found

    def receive(self, number: int, ours: bool, changed: bool, content: Any) -> Any:
        """This side's copy of a container.

        Args:
            number, ours: its number, and whether this side has given it.
            changed: whether the other side has changed the content. Otherwise the content counts only where the
                container is new here: this side may have changed its copy meanwhile.
            content: as it has arrived; it becomes the copy where the container is new.

        Raises:
            WireError: it is a container of another kind, or an array that can't take the content.
        """
        entry = self._by_key.get((number, ours))
        if entry is None:
            return self._keep((number, ours), content).value
        if changed:
            _put(entry.value, content)
            entry.snapshot = _snapshot(entry.value)
        return entry.value

    def forget(self) -> None:
        """Let go of each container that nothing else here holds; what only such a one holds goes next time."""
        for key in list(self._by_key):
            entry = self._by_key[key]
            if sys.getrefcount(entry.value) <= _HELD_BY_ENTRY_ALONE:
                del self._by_key[key], self._by_id[id(entry.value)]

    def _keep(self, key: tuple[int, bool], value: Any) -> _Entry:
        entry = _Entry(key, value, _snapshot(value))
        self._by_key[key] = self._by_id[id(value)] = entry
        return entry


def _snapshot(value: Any) -> Any:
    return (value.shape, value.tobytes()) if type(value) is np.ndarray else value.copy()


def _same(value: Any, snapshot: Any) -> bool:
    """Whether a container has the content of a snapshot: of an array the same bytes, otherwise equal items."""
    if type(value) is np.ndarray:
        return (value.shape, value.tobytes()) == snapshot
    try:
        return bool(type(value) is type(snapshot) and len(value) == len(snapshot) and value == snapshot)
    except Exception:  # items may refuse to be compared
        return False


def _put(value: Any, content: Any) -> None:
    """Replace the content of a container in place."""
    if type(value) is not type(content):
        raise WireError(f"a {type(value).__name__} became a {type(content).__name__}")
    if type(value) is np.ndarray:
        if value.shape != content.shape or value.dtype != content.dtype:
            raise WireError(f"an array {value.dtype} {value.shape} became {content.dtype} {content.shape}")
        if not value.flags.writeable:
            raise WireError("an array that is read-only was changed")
        value[...] = content
    elif type(value) is list:
        value[:] = content
    else:
        value.clear()
        value.update(content)
