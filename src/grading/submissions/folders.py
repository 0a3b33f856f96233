"""A submission that is a folder; no link in it is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from grading.submissions.members import Bounds, Budget, Kind, Member, Refused, is_passed_over, shown


class FolderSource:
    """A folder's files; folders that are passed over are not entered."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def members(self, bounds: Bounds) -> Iterator[Member]:
        """See ``Source``: in the order of their names."""
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            with os.scandir(self._path / folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
            for entry in found:
                kind = _kind(entry.stat(follow_symlinks=False).st_mode)
                path = f"{folder}{entry.name}"
                yield Member(path, kind)
                if kind is Kind.FOLDER and not is_passed_over(entry.name):
                    waiting.append(f"{path}/")

    def read(self, paths: Collection[str], bounds: Bounds) -> dict[str, bytes]:
        """See ``Source``."""
        budget = Budget(bounds.size)
        return {path: read_regular(self._path / path, budget) for path in paths}


def read_regular(path: Path, budget: Budget) -> bytes:
    """The content of a regular file, which is no link itself.

    Raises:
        Refused: it is no regular file, or has more bytes than the budget.
        OSError: it can't be read.
    """
    # Without O_NONBLOCK, a pipe would make us wait for somebody who writes into it.
    flags = (
        os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Refused(f"{shown(path.name)} is no regular file")
        content = file.read(budget.left + 1)
    budget.take(len(content))
    return content


def _kind(mode: int) -> Kind:
    if stat.S_ISLNK(mode):
        return Kind.LINK
    if stat.S_ISDIR(mode):
        return Kind.FOLDER
    return Kind.FILE if stat.S_ISREG(mode) else Kind.OTHER
