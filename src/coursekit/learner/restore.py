"""`pdm run restore`: brings files back that another command copied before it changed them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.learner.copies import Copies, list_copies, save_copies
from coursekit.learner.state import State
from coursekit.paths import Course


def restore(
    copy: Annotated[
        str | None, typer.Argument(metavar="[COPY]", help="Its number in the list, or its folder's name.")
    ] = None,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Only this file of it, for example attention.py.")
    ] = None,
) -> None:
    """Bring your files back as they were before a reset, a catch-up or a restore; without COPY, list what there is.

    Your present files are copied first, so nothing is lost: restore that copy to undo the restore.
    """
    course = Course.find()
    there = list_copies(course)
    console = Console(highlight=False, soft_wrap=True)
    if copy is None:
        _show_list(console, there)
        return
    chosen = _choose(there, copy)
    files = _files(chosen, file)
    contents = {course.root / name: (chosen.folder / name).read_bytes() for name in files}
    changed = {path: new for path, new in contents.items() if not path.is_file() or path.read_bytes() != new}
    if not changed:
        console.print("Nothing to restore: your files are like the copies.")
        return
    present = save_copies(course, changed, "restore", State.load(course))
    # First the record: what was borrowed comes back as borrowed.
    with State.changing(course) as state:
        for package, marks in chosen.borrowed.items():
            own = {ref: mark for ref, mark in marks.items() if _is_in(package, ref, files)}
            state.borrowed.setdefault(package, {}).update(own)
    write_files(changed)
    console.print(f"Restored, as of {chosen.when}:")
    for path in changed:
        console.print(f"  {path.relative_to(course.root).as_posix()}", markup=False)
    if present:
        console.print(f"Your files as they were: pdm run restore {present.name}", markup=False)
    console.print("Test them:               pdm run test", markup=False)


def _choose(there: list[Copies], copy: str) -> Copies:
    if copy.isascii() and copy.isdigit() and 1 <= int(copy) <= len(there):
        return there[int(copy) - 1]
    for one in there:
        if one.folder.name == copy:
            return one
    listed = "pdm run restore lists them" if there else "there are none"
    raise CourseError(f"there is no copy {copy!r}: {listed}")


def _files(copies: Copies, wanted: str | None) -> list[Path]:
    """The files to bring back; `wanted` is a path or the end of one."""
    if wanted is None:
        return copies.files
    parts = Path(wanted).parts
    found = [file for file in copies.files if file.parts[-len(parts) :] == parts]
    if not found:
        names = ", ".join(file.as_posix() for file in copies.files)
        raise CourseError(f"the copy has no file {wanted}; it has: {names}")
    return found


def _is_in(package: str, ref: str, files: list[Path]) -> bool:
    return Path("src", package, ref.partition("::")[0]) in files


def _show_list(console: Console, there: list[Copies]) -> None:
    if not there:
        console.print("There are no copies yet: reset and catch-up make them before they change your files.")
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for number, copies in enumerate(there, 1):
        names = "\n".join(file.as_posix() for file in copies.files)
        table.add_row(
            str(number), copies.when, Text(f"before {copies.reason}".removesuffix("before ")), names
        )
    console.print(table)
    console.print(
        "\npdm run restore NUMBER brings all files of a copy back; pdm run restore NUMBER FILE one of them."
    )
