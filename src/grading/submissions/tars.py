"""A submission that is a tar file, compressed or not: nothing of it is unpacked to disk."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from grading.submissions.members import Bounds, Budget, Kind, Member, Refused, shown_size

GZIP, BZIP2, XZ, ZSTANDARD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
CHUNK = 64 * 1024


class TarSource:
    """The files of a tar file; what compresses it is seen from its first bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def members(self, bounds: Bounds) -> Iterator[Member]:
        """See ``Source``: in the order of the tar file."""
        with _opened(self._path, bounds) as archive:
            for info in archive:
                yield Member(info.name, _kind(info))

    def read(self, paths: Collection[str], bounds: Bounds) -> dict[str, bytes]:
        """See ``Source``."""
        budget, wanted = Budget(bounds.size), set(paths)
        contents: dict[str, bytes] = {}
        with _opened(self._path, bounds) as archive:
            for info in archive:
                if info.name in wanted:
                    contents[info.name] = _read(archive, info, budget)
        return contents


class _Counted:
    """A stream that refuses to give more than so many bytes: the whole of it has to be read to see what is in it."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._most, self._left = stream, most, most

    def read(self, size: int) -> bytes:
        content = self._stream.read(min(size, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise Refused(f"it unpacks to more than {shown_size(self._most)}")
        return content


@contextmanager
def _opened(path: Path, bounds: Bounds) -> Iterator[tarfile.TarFile]:
    with open(path, "rb") as file, _decompressed(file) as stream:
        counted = cast(IO[bytes], _Counted(stream, bounds.unpacked))
        with tarfile.open(fileobj=counted, mode="r|", tarinfo=tarfile.TarInfo) as archive:
            yield archive
        while counted.read(CHUNK):  # up to its end, where the sum over all stands
            pass


def _decompressed(file: IO[bytes]) -> IO[bytes]:
    start = file.read(len(XZ))
    file.seek(0)
    if start.startswith(GZIP):
        return cast(IO[bytes], gzip.open(file))
    if start.startswith(BZIP2):
        return cast(IO[bytes], bz2.open(file))
    if start.startswith(XZ):
        return cast(IO[bytes], lzma.open(file))
    if start.startswith(ZSTANDARD):
        raise Refused("Zstandard is not read here: pack it as .zip or .tar.gz")
    return file


def _read(archive: tarfile.TarFile, info: tarfile.TarInfo, budget: Budget) -> bytes:
    file = archive.extractfile(info)
    if file is None:
        raise Refused(f"{info.name} is no file")
    chunks = []
    while chunk := file.read(CHUNK):
        budget.take(len(chunk))
        chunks.append(chunk)
    return b"".join(chunks)


def _kind(info: tarfile.TarInfo) -> Kind:
    if info.issym() or info.islnk():
        return Kind.LINK
    if info.isdir():
        return Kind.FOLDER
    return Kind.FILE if info.isreg() else Kind.OTHER
