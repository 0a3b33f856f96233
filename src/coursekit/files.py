"""Writes files whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
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
