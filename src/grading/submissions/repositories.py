"""A submission that is a git repository: the files of the commit that HEAD names, and the time of that commit."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO

from grading.submissions.git_head import head_commit
from grading.submissions.git_program import reading
from grading.submissions.members import MIB, Bounds, Budget, Kind, Member, Refused

KINDS = {"100644": Kind.FILE, "100755": Kind.FILE, "100664": Kind.FILE, "120000": Kind.LINK}
"""git's modes; a submodule's is not among them."""
_ROW = re.compile(rb"(\d{6}) \w+ ([0-9a-f]+) +(\d+|-)\t(.+)", re.DOTALL)
_COMMITTER = re.compile(rb"^committer .*> (\d{1,11}) [+-]\d{4}$", re.MULTILINE)
CHUNK = 64 * 1024


class GitSource:
    """The files of one commit; working files that aren't committed are not looked at."""

    def __init__(self, folder: Path) -> None:
        """Look at a repository's folder: the one with ``objects`` in it."""
        self._folder = folder
        self._blobs: dict[str, str] = {}

    @cached_property
    def commit(self) -> str:
        """The id of the commit.

        Raises:
            Refused: there is none.
        """
        return head_commit(self._folder)

    def members(self, bounds: Bounds) -> Iterator[Member]:
        """See ``Source``: in git's order."""
        arguments = ["ls-tree", "-r", "-z", "-l", "--full-tree", self.commit]
        with reading(self._folder, self.commit, arguments) as output:
            for row in _rows(output):
                match = _ROW.fullmatch(row)
                if match is None:
                    raise Refused("its repository holds a list of files that can't be read")
                path = match[4].decode("utf-8", "surrogateescape")
                self._blobs[path] = match[2].decode()
                yield Member(path, KINDS.get(match[1].decode(), Kind.OTHER))

    def read(self, paths: Collection[str], bounds: Bounds) -> dict[str, bytes]:
        """See ``Source``; the paths are those that ``members`` has given before."""
        budget = Budget(bounds.size)
        asked = "".join(f"{self._blobs[path]}\n" for path in paths)
        with reading(self._folder, self.commit, ["cat-file", "--batch"], asked.encode()) as output:
            return {path: _next_object(output, budget) for path in paths}

    def committed(self) -> datetime:
        """When the commit was made, as the learner's computer said.

        Raises:
            Refused: the repository can't be read.
        """
        with reading(
            self._folder, self.commit, ["cat-file", "--batch"], f"{self.commit}\n".encode()
        ) as output:
            match = _COMMITTER.search(_next_object(output, Budget(MIB)))
        if match is None:
            raise Refused("the time of its commit can't be read")
        return datetime.fromtimestamp(int(match[1]), UTC)


def _rows(output: IO[bytes]) -> Iterator[bytes]:
    """What stands between the zero bytes."""
    rest = b""
    while chunk := output.read(CHUNK):
        *rows, rest = (rest + chunk).split(b"\0")
        yield from rows
        if len(rest) > CHUNK:
            raise Refused("its repository holds a name that is too long")


def _next_object(output: IO[bytes], budget: Budget) -> bytes:
    """The next of the objects that git was asked for."""
    words = output.readline(CHUNK).split()
    if len(words) != 3:
        raise Refused("its repository lacks a file of its last commit: clone it whole")
    budget.take(int(words[2]))
    content = output.read(int(words[2]))
    output.read(1)
    return content
