"""Zip files that are always the same: the same contents give the same bytes, on every machine."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from coursekit.errors import CourseError

NO_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file knows."""
UNIX, ORDINARY_FILE = 3, 0o100000
LARGEST_ABOUT = 1 << 20


def zip_files(contents: Mapping[str, bytes], modes: Mapping[str, int] | None = None) -> bytes:
    """A zip file of these files.

    Args:
        contents: what is in each file, by its path within the zip.
        modes: who may read, write and run a file, where that is not 0o644.
    """
    packed = io.BytesIO()
    # Stored and not compressed: what compression gives depends on the machine's zlib.
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(contents):
            archive.writestr(_entry(name, (modes or {}).get(name, 0o644)), contents[name])
    return packed.getvalue()


def require_ours(path: Path, about: str, kind: str, what: str, why_zip: str) -> None:
    """Refuse a place where something lies that is no zip file of this kind.

    Args:
        path: the place.
        about: the file in the zip whose ``format`` says the kind.
        kind: what it says.
        what: the kind in words, as "a submission of this course".
        why_zip: why the name has to end in .zip, as "by which the grader knows it".

    Raises:
        CourseError: there is a folder, or a file of another kind; or the file can't be read.
    """
    if path.suffix.lower() != ".zip":
        raise CourseError(f"{path}: let the name end in .zip, {why_zip}")
    if os.path.isdir(path):  # a name that is too long is no folder, and no error yet
        raise CourseError(f"{path} is a folder: name the file to write")
    if os.path.lexists(path) and not _is_ours(path, about, kind):
        raise CourseError(f"{path} is not {what}: move it away, or choose another name")


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    """The head of a file in the zip, which says the same on all systems."""
    entry = zipfile.ZipInfo(name, NO_TIME)
    entry.create_system, entry.external_attr = UNIX, (ORDINARY_FILE | mode) << 16
    return entry


def _is_ours(path: Path, about: str, kind: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(about)
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > LARGEST_ABOUT:
                return False  # ours is small and not compressed; a damaged one could fail in many ways
            said = json.loads(archive.read(about))
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, EOFError):
        return False
    except OSError as error:
        raise CourseError(f"can't read {path}: {error.strerror}") from error
    return isinstance(said, dict) and said.get("format") == kind
