"""Takes the files that count out of a submission."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from grading.submissions.choosing import find_files, strangers
from grading.submissions.entries import Entry, archive_ending, source_of
from grading.submissions.folders import FolderSource
from grading.submissions.layout import Layout
from grading.submissions.members import Bounds, Refused, Source, checked, shown
from grading.submissions.repositories import GitSource

UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)
"""What the readers of archives raise for one that is damaged, or made to confuse them."""
NAMES_SHOWN = 5


class Clock(StrEnum):
    """From what the time of a submission is known."""

    ROSTER = "the roster"
    COMMIT = "the last commit"
    FILE = "the file"
    """When it was changed last: often the time of a download."""


@dataclass(frozen=True)
class HandedIn:
    """The files of a submission that count, by their places beside one another (``tiny_llm/attention.py``).

    ``notes`` say what was not taken; ``submitted`` is the time of the submission.
    """

    files: Mapping[str, bytes]
    notes: tuple[str, ...]
    submitted: datetime
    clock: Clock

    @property
    def content(self) -> str:
        """A hash of the files: of names and bytes."""
        digest = sha256()
        for name in sorted(self.files):
            for part in (name.encode(), self.files[name]):
                digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest()


def read_submission(entry: Entry, layouts: Sequence[Layout], bounds: Bounds | None = None) -> HandedIn:
    """Read what counts of a submission.

    Args:
        entry: the submission.
        layouts: the packages that may be in it; it must have something of the last one.
        bounds: how much it may hold.

    Raises:
        Refused: it can't be read, isn't safe to read, or has nothing that counts.
        CourseError: something is missing here, such as git.
    """
    limits = bounds or Bounds()
    try:
        return _read(entry.path, layouts, limits)
    except UNREADABLE as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise Refused(f"it can't be read: {shown(reason)}") from error


def _read(path: Path, layouts: Sequence[Layout], bounds: Bounds, inner: bool = False) -> HandedIn:
    source = source_of(path)
    raw = checked(source.members(bounds), bounds)
    found = {layout.package: find_files(raw, layout, layout is layouts[-1]) for layout in layouts}
    if not found[layouts[-1].package]:
        archives = [name for name in raw if archive_ending(name)]
        if isinstance(source, FolderSource) and len(archives) == 1 and not inner:
            return _read(path / raw[archives[0]], layouts, bounds, inner=True)
        raise Refused(f"it holds no file of {layouts[-1].package} that counts")
    wanted = [
        raw[place]
        for layout in layouts
        for file, place in found[layout.package].items()
        if file in layout.starter
    ]
    contents = source.read(wanted, bounds)
    files: dict[str, bytes] = {}
    notes: list[str] = []
    for layout in layouts:
        own = {file: contents[raw[p]] for file, p in found[layout.package].items() if file in layout.starter}
        text = {file: content for file, content in own.items() if b"\0" not in content}
        files |= {f"{layout.package}/{file}": text[file] for file in sorted(text.keys() & layout.counted)}
        notes += _notes(layout, own, strangers(found[layout.package], layout))
    return HandedIn(files, tuple(notes), *_time(source, path, wanted))


def _notes(layout: Layout, own: Mapping[str, bytes], unknown: Sequence[str]) -> list[str]:
    binary = sorted(file for file in layout.counted & own.keys() if b"\0" in own[file])
    changed = sorted(file for file in layout.given & own.keys() if not _same(own[file], layout.starter[file]))
    notes = [
        (binary, "not text, so the starter's are taken"),
        (changed, "given files that were changed, so the course's are taken"),
        (unknown, "not files of the course, so not taken"),
    ]
    return [f"{layout.package}: {what}: {_listed(files)}" for files, what in notes if files]


def _same(one: bytes, other: bytes) -> bool:
    """Whether two files are the same but for the ends of their lines."""
    return one.replace(b"\r\n", b"\n") == other.replace(b"\r\n", b"\n")


def _listed(files: Sequence[str]) -> str:
    names = ", ".join(shown(file) for file in files[:NAMES_SHOWN])
    return names + (f" and {len(files) - NAMES_SHOWN} more" if len(files) > NAMES_SHOWN else "")


def _time(source: Source, path: Path, wanted: Sequence[str]) -> tuple[datetime, Clock]:
    if isinstance(source, GitSource):
        return source.committed(), Clock.COMMIT
    places = [path / name for name in wanted] if isinstance(source, FolderSource) else [path]
    newest = max(place.lstat().st_mtime for place in places)
    return datetime.fromtimestamp(int(newest), UTC), Clock.FILE
