"""Objects that one side has handed out to the other, by number."""

from __future__ import annotations

import threading
from typing import Any


class Table:
    """An object that was handed out lives until the other side has given back every reference that it got."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._numbers: dict[
            int, int
        ] = {}  # by the id of an object, which stays its own while the table holds it
        self._sent: dict[int, int] = {}
        self._next = 0
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._objects)

    def number(self, value: Any) -> int:
        """The number of an object, for one more reference to it."""
        with self._lock:
            number = self._numbers.get(id(value))
            if number is None:
                number = self._numbers[id(value)] = self._next
                self._objects[number] = value
                self._next += 1
            self._sent[number] = self._sent.get(number, 0) + 1
            return number

    def __getitem__(self, number: int) -> Any:
        """The object.

        Raises:
            KeyError: it was not handed out, or was given back.
        """
        return self._objects[number]

    def release(self, number: int, references: int) -> None:
        """Take back as many references to an object; an unknown number does nothing."""
        with self._lock:
            if number not in self._sent:
                return
            self._sent[number] -= references
            if self._sent[number] <= 0:
                del self._sent[number]
                value = self._objects.pop(number)
                del self._numbers[id(value)]
