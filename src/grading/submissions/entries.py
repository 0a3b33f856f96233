"""What lies in the folder of a class: one entry per learner."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from coursekit.backends import Backend
from coursekit.errors import CourseError
from grading.submissions.folders import FolderSource
from grading.submissions.git_head import git_folder
from grading.submissions.members import Refused, Source
from grading.submissions.repositories import GitSource
from grading.submissions.tars import TarSource
from grading.submissions.zips import ZipSource

TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst")
UNREADABLE = (".rar", ".7z")
"""Archives that learners hand in and that no library here reads: refused, not overlooked."""
ARCHIVES = (".zip", *TARS, *UNREADABLE)


@dataclass(frozen=True)
class Entry:
    """One submission: a folder, an archive or a git repository."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def stem(self) -> str:
        """The name without the ending of an archive."""
        if self.path.is_dir():
            return self.name.removesuffix(".git") or self.name
        ending = archive_ending(self.name)
        return self.name[: len(self.name) - len(ending)] or self.name


def archive_ending(name: str) -> str:
    """The ending that makes a file an archive, ``.tar.gz`` say; empty where there is none."""
    return max((ending for ending in ARCHIVES if name.lower().endswith(ending)), key=len, default="")


def list_entries(folder: Path, others: Collection[Path]) -> tuple[list[Entry], list[str]]:
    """The submissions in a folder, and the names of the files there that are none, both by name.

    Hidden files are left out, and so are ``others``, which are the instructor's own.

    Raises:
        CourseError: the folder can't be read, holds no submission, or is a submission itself.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise CourseError(f"can't read the folder {folder}: {error.strerror}") from error
    if any(_is_package(folder, backend.package) for backend in Backend):
        raise CourseError(
            f"{folder} looks like one submission: name the folder that holds those of the class"
        )
    own = {os.path.realpath(path) for path in others}
    paths = [folder / name for name in names if not name.startswith(".")]
    paths = [path for path in paths if os.path.realpath(path) not in own]
    entries = [Entry(path) for path in paths if path.is_dir() or archive_ending(path.name)]
    if not entries:
        raise CourseError(f"{folder} holds no submission: no folder, no zip or tar file, no git repository")
    taken = {entry.path for entry in entries}
    return entries, [path.name for path in paths if path not in taken]


def source_of(path: Path) -> Source:
    """The submission at a place, ready to be looked into.

    Raises:
        Refused: it is a link, or nothing that can be read here.
    """
    if path.is_symlink():
        raise Refused("it is a link")
    if path.is_dir():
        repository = git_folder(path)
        return FolderSource(path) if repository is None else GitSource(repository)
    ending = archive_ending(path.name)
    if ending in UNREADABLE or not ending:
        raise Refused(f"{ending or 'this'} is not read here: pack it as .zip or .tar.gz")
    return ZipSource(path) if ending == ".zip" else TarSource(path)


def _is_package(folder: Path, package: str) -> bool:
    return (folder / package).is_dir() or (folder / "src" / package).is_dir()
