"""Methods of the other side's objects: which attributes they are, and those that this side holds."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from grading.link.remote import Remote, RemoteMethod


class Methods:
    """Which attributes are methods is asked once for each class, so that a call is a single message.

    A method that was taken from an object stays what it was then: before an attribute of its name is set anywhere,
    it is fetched.
    """

    def __init__(self, fetch: Callable[[Remote, str], Any]) -> None:
        """Args: fetch: gives the attribute of an object of the other side."""
        self._fetch = fetch
        self._names: dict[type, set[str]] = {}
        self._taken: weakref.WeakSet[RemoteMethod] = weakref.WeakSet()
        self._lock = threading.Lock()

    def take(self, remote: Remote, name: str) -> RemoteMethod | None:
        """The method of this name; None where it isn't known to be one."""
        if name not in self._names.get(type(remote), ()):
            return None
        method = RemoteMethod(remote, name)
        with self._lock:
            self._taken.add(method)
        return method

    def note(self, remote: Remote, name: str) -> None:
        """The attribute is a method."""
        self._names.setdefault(type(remote), set()).add(name)

    def before_write(self, name: str) -> None:
        """An attribute of this name is set or deleted: it may have been a method, or become one."""
        with self._lock:
            taken = [method for method in self._taken if method._name == name]
        for method in taken:
            method.hold(self._fetch(method._owner, name))
        for names in self._names.values():
            names.discard(name)
