"""Writes new and changed files, all of them or none, whatever comes in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from coursekit.files import write_files


def write_or_undo(contents: Mapping[Path, bytes]) -> None:
    """Write all files. After an error or Ctrl-C all is as it was, folders that had to be made included.

    Raises:
        CourseError: one can't be written.
    """
    before = {path: path.read_bytes() for path in contents if path.is_file()}
    folders = _missing_folders(contents)
    try:
        write_files(contents)
    except BaseException:
        _undo(contents, before, folders)
        raise


def _undo(contents: Iterable[Path], before: Mapping[Path, bytes], folders: Iterable[Path]) -> None:
    write_files({path: content for path, content in before.items() if path.read_bytes() != content})
    for path in contents:
        if path not in before:
            path.unlink(missing_ok=True)
    for folder in folders:
        with suppress(OSError):  # it was not made, or another program has put something into it
            folder.rmdir()


def _missing_folders(paths: Iterable[Path]) -> list[Path]:
    """The folders that must be made for these files, the innermost first."""
    missing = {folder for path in paths for folder in path.parents if not folder.exists()}
    return sorted(missing, key=lambda folder: len(folder.parts), reverse=True)
