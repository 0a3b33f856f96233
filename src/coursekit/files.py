"""Writes files whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from coursekit.errors import CourseError


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write several files: all are written beside their places first, then moved into them.

    So an error while writing (a full disk, a folder without leave to write) changes none of them.

    Raises:
        CourseError: a file can't be written.
    """
    staged: dict[Path, Path] = {}
    target = Path()
    try:
        for path, content in contents.items():
            target = path.resolve()
            target.parent.mkdir(parents=True, exist_ok=True)
            staged[target] = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            staged[target].write_bytes(content)
            if target.exists():
                shutil.copymode(target, staged[target])
        for target, temporary in staged.items():
            os.replace(temporary, target)
    except OSError as error:
        # A full disk has no file name; and the learner knows the file, not what was to become it.
        raise CourseError(f"can't write {target}: {error.strerror}; nothing was changed there") from error
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write one UTF-8 file, line ends as they stand in `text`.

    Raises:
        CourseError: the file can't be written.
    """
    write_files({path: text.encode("utf-8")})


def require_writable(paths: Iterable[Path]) -> None:
    """Find out before hours of work whether some files can be written after it; what is in them stays.

    Raises:
        CourseError: one can't be written, or is a folder.
    """
    for path in paths:
        target = path.resolve()
        if os.path.isdir(target):
            raise CourseError(f"can't write {path}: it is a folder")
        trial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            trial.touch()
            trial.unlink()
        except (FileExistsError, NotADirectoryError):
            raise CourseError(f"can't write {path}: {target.parent} is not a folder") from None
        except OSError as error:
            raise CourseError(f"can't write {path}: {error.strerror}") from error
