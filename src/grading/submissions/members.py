"""What lies in a submission, whatever its form: names that were looked at before anything is read."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

MIB = 1 << 20
PASSED_OVER = frozenset({"__macosx", "__pycache__", "node_modules", "venv", "env"})
"""Folders in which no learner writes code; so are all whose names begin with a dot, such as ``.venv``."""
_DRIVE = re.compile(r"[A-Za-z]:")


class Refused(Exception):
    """Why a submission can't be graded, in a sentence for its learner; the class goes on without it."""


class Kind(StrEnum):
    """What a member of a submission is."""

    FILE = "a file"
    FOLDER = "a folder"
    LINK = "a link"
    OTHER = "neither a file nor a folder"


@dataclass(frozen=True)
class Member:
    """One member; ``path`` is as the submission has it, ``encrypted`` says that a password hides its content."""

    path: str
    kind: Kind
    encrypted: bool = False


@dataclass(frozen=True)
class Bounds:
    """How much a submission may hold.

    ``entries`` are all its files and folders, ``size`` the bytes of the files that are read, ``unpacked`` the bytes
    that a compressed stream may become, ``depth`` the folders within folders, ``name`` the bytes of one name.
    """

    entries: int = 100_000
    size: int = 32 * MIB
    unpacked: int = 256 * MIB
    depth: int = 32
    name: int = 255


class Source(Protocol):
    """A submission in one of its forms."""

    def members(self, bounds: Bounds) -> Iterator[Member]:
        """All that is in it, one by one; nothing is read or written.

        Raises:
            Refused: it can't be read, or would unpack to more than the bounds allow.
        """

    def read(self, paths: Collection[str], bounds: Bounds) -> dict[str, bytes]:
        """The content of files, by their paths as ``members`` gave them.

        Raises:
            Refused: they can't be read, or are larger than the bounds allow.
        """


class Budget:
    """Counts the bytes of one submission while they are read: what its headers say is not believed."""

    def __init__(self, size: int) -> None:
        self._size = self.left = size

    def take(self, count: int) -> None:
        """Note that so many bytes were read.

        Raises:
            Refused: that is more than was left.
        """
        self.left -= count
        if self.left < 0:
            raise Refused(f"it holds more than the {shown_size(self._size)} that a submission may")


def shown_size(size: int) -> str:
    """Bytes for people: in MiB where they are whole MiB."""
    return f"{size // MIB} MiB" if size and size % MIB == 0 else f"{size} bytes"


def is_passed_over(name: str) -> bool:
    """Whether a file or folder of this name is looked at no further, links in it included."""
    return name.startswith(".") or name.casefold() in PASSED_OVER


def clean_path(path: str) -> str:
    """The path with ``/`` between its parts, without ``.`` and empty parts.

    Raises:
        Refused: it leads out of the submission.
    """
    forward = path.replace("\\", "/")
    parts = [part for part in forward.split("/") if part not in ("", ".")]
    if forward.startswith("/") or (parts and _DRIVE.match(parts[0])):
        raise Refused(f"{shown(path)} is an absolute path")
    if ".." in parts:
        raise Refused(f"{shown(path)} leads out of the submission by `..`")
    return "/".join(parts)


def checked(members: Iterable[Member], bounds: Bounds) -> dict[str, str]:
    """The files of a submission: their clean paths, each with the path as the submission has it.

    Files in the folders that are passed over are left out.

    Raises:
        Refused: a path leads out, or two are the same but for case; a member is a link, a device or encrypted;
            there are too many, they lie too deep or have names that are too long.
    """
    files: dict[str, str] = {}
    seen: dict[str, str] = {}
    for number, member in enumerate(members, 1):
        if number > bounds.entries:
            raise Refused(f"it holds more than {bounds.entries} files and folders")
        path = clean_path(member.path)
        parts = path.split("/")
        if any(is_passed_over(part) for part in parts):
            continue
        _check(member, parts, bounds)
        if member.kind is Kind.FILE:
            key = unicodedata.normalize("NFC", path).casefold()
            if key in seen:
                raise Refused(
                    f"{shown(member.path)} and {shown(seen[key])} are the same name for some systems"
                )
            seen[key] = member.path
            files[path] = member.path
    return files


def _check(member: Member, parts: list[str], bounds: Bounds) -> None:
    if member.kind in (Kind.LINK, Kind.OTHER):
        raise Refused(f"{shown(member.path)} is {member.kind}")
    if member.encrypted:
        raise Refused(f"{shown(member.path)} is encrypted")
    if len(parts) > bounds.depth:
        raise Refused(f"{shown(member.path)} lies more than {bounds.depth} folders deep")
    if any(len(part.encode("utf-8", "surrogateescape")) > bounds.name for part in parts):
        raise Refused(f"{shown(member.path)} has a name of more than {bounds.name} bytes")


def shown(text: str, most: int = 100) -> str:
    """A name that anybody may have chosen, for a message: in one line, without control characters, shortened."""
    plain = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"
