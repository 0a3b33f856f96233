"""Copies of the learner's files, kept under `.course/backups` before a command changes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.learner.state import State
from coursekit.paths import Course

ABOUT = "about.json"
TIME = "%Y%m%d-%H%M%S"


@dataclass(frozen=True)
class Copies:
    """One folder of copies: what it was made for, and which functions were borrowed then (as in `State`)."""

    folder: Path
    reason: str
    borrowed: Mapping[str, Mapping[str, str]]

    @property
    def files(self) -> list[Path]:
        """The copied files, by their paths in the course."""
        return sorted(
            path.relative_to(self.folder) for path in self.folder.glob("src/**/*") if path.is_file()
        )

    @property
    def when(self) -> str:
        """The time of the copy, for people; the folder's name where it says none."""
        try:
            return datetime.strptime(self.folder.name[:15], TIME).strftime("%Y-%m-%d %H:%M:%S")
        except ValueError:
            return self.folder.name


def save_copies(course: Course, paths: Iterable[Path], reason: str, state: State) -> Path | None:
    """Copy files into a new folder under `.course/backups`, at the paths they have in the course.

    Returns:
        The folder, named by the time; None where none of the files exists.
    """
    contents = {path.relative_to(course.root): path.read_bytes() for path in paths if path.is_file()}
    if not contents:
        return None
    folder = _new_folder(course.state / "backups", datetime.now().strftime(TIME))
    about = {"reason": reason, "borrowed": state.borrowed}
    copies = {folder / path: content for path, content in contents.items()}
    write_files({folder / ABOUT: json.dumps(about, indent=1).encode(), **copies})
    return folder


def list_copies(course: Course) -> list[Copies]:
    """Every folder of copies, the newest first."""
    folders = sorted((course.state / "backups").glob("*/"), key=_order, reverse=True)
    found = [_read(folder) for folder in folders]
    return [copies for copies in found if copies.files]


def _order(folder: Path) -> tuple[str, int]:
    number = folder.name[16:]
    return folder.name[:15], int(number) if number.isascii() and number.isdigit() else 1


def _read(folder: Path) -> Copies:
    """A folder whose note is missing or damaged was made for no known reason."""
    try:
        about = json.loads((folder / ABOUT).read_bytes())
        borrowed = {
            str(package): {str(ref): str(mark) for ref, mark in refs.items()}
            for package, refs in about["borrowed"].items()
        }
        return Copies(folder, str(about["reason"]), borrowed)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Copies(folder, "", {})


def _new_folder(parent: Path, name: str) -> Path:
    """Make a folder of its own, even when several are made in one second."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            folder = parent / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                number += 1
    except OSError as error:
        raise CourseError(f"can't make a folder for copies in {parent}: {error.strerror}") from error
