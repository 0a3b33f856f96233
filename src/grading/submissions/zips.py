"""A submission that is a zip file: nothing of it is unpacked to disk."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

from grading.submissions.members import MIB, Bounds, Budget, Kind, Member, Refused, shown_size

DIRECTORY = 16 * MIB
"""The most bytes that the list of a zip file's members may take: each of them costs ten times that in memory."""
CHUNK = 64 * 1024
ENCRYPTED = 0x1


class ZipSource:
    """The files of a zip file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def members(self, bounds: Bounds) -> Iterator[Member]:
        """See ``Source``: in the order of the zip file's own list."""
        with _Careful(self._path) as file, zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                yield Member(info.filename, _kind(info), bool(info.flag_bits & ENCRYPTED))

    def read(self, paths: Collection[str], bounds: Bounds) -> dict[str, bytes]:
        """See ``Source``."""
        budget = Budget(bounds.size)
        with _Careful(self._path) as file, zipfile.ZipFile(file) as archive:
            return {path: _read(archive, path, budget) for path in paths}


class _Careful(io.BufferedReader):
    """A file of which no reader gets very much at once: ``zipfile`` reads the whole list of members in one go."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))

    def read(self, size: int | None = -1, /) -> bytes:
        content = super().read(DIRECTORY + 1 if size is None or size < 0 else min(size, DIRECTORY + 1))
        if len(content) > DIRECTORY:
            raise Refused(f"its list of files takes more than {shown_size(DIRECTORY)}")
        return content


def _read(archive: zipfile.ZipFile, path: str, budget: Budget) -> bytes:
    chunks = []
    with archive.open(path) as file:
        while chunk := file.read(CHUNK):
            budget.take(len(chunk))
            chunks.append(chunk)
    return b"".join(chunks)


def _kind(info: zipfile.ZipInfo) -> Kind:
    """Systems without such modes leave them 0."""
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return Kind.LINK
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return Kind.OTHER
    return Kind.FOLDER if info.is_dir() else Kind.FILE
