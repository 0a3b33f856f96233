"""`pdm run starter`: the learner's packages, generated from the reference or compared with it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from authoring.drift import Drift, Origin, find_drift
from coursekit.editing.assembly import generate, package_files
from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.learner.copies import save_copies
from coursekit.learner.state import State
from coursekit.manifest import Manifest, load_manifest
from coursekit.paths import PACKAGES, Course


def starter(
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit with 1 where files have drifted.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Overwrite changed files too, after copying them to .course/backups."),
    ] = False,
) -> None:
    """Generate the learner's packages from the reference, or check that they still agree with it.

    This is for whoever writes the course. To put your own stubs back, use `pdm run reset`.
    """
    course = Course.find()
    wanted = wanted_files(course, load_manifest(course))
    drifts = drifted(course, wanted)
    console = Console(highlight=False, soft_wrap=True)
    if check:
        _report(course, drifts, console)
        raise typer.Exit(1 if drifts else 0)
    _write(course, wanted, drifts, force, console)


def wanted_files(course: Course, manifest: Manifest) -> dict[str, dict[str, bytes]]:
    """By package, what the untouched starter should hold."""
    return {package: generate(course, package, manifest) for package in PACKAGES}


def drifted(course: Course, wanted: dict[str, dict[str, bytes]]) -> list[Drift]:
    """Every file of the starter on disk that is not what the reference gives."""
    return [
        drift
        for package, contents in wanted.items()
        for drift in find_drift(course.starter(package), contents, package_files(course.starter(package)))
    ]


def _report(course: Course, drifts: list[Drift], console: Console) -> None:
    if not drifts:
        console.print("The starter agrees with the reference.")
        return
    for drift in drifts:
        console.print(f"[red]{_name(course, drift.path)}[/red] {drift.kind}")
        for line in drift.diff():
            console.print(f"    {line}", markup=False)
    console.print(
        f"\n{_count(len(drifts))} drifted from the reference; `pdm run starter` generates them anew."
    )


def _write(
    course: Course, wanted: dict[str, dict[str, bytes]], drifts: list[Drift], force: bool, console: Console
) -> None:
    origin = Origin(course)
    changed = [drift for drift in drifts if drift.after is not None]
    extra = [drift for drift in drifts if drift.after is None]
    precious = [drift for drift in changed if not origin.is_safe_to_overwrite(drift)]
    if precious and not force:
        names = ", ".join(_name(course, drift.path) for drift in precious)
        raise CourseError(
            f"{names}: changed by hand and not committed, so nothing was written. To put stubs back use "
            "`pdm run reset`; to overwrite all the same use --force, which keeps copies in .course/backups"
        )
    deleted = [drift for drift in extra if origin.is_safe_to_delete(drift)]
    own_files = [d.path for d in changed + deleted if not origin.is_generated(d)]
    copies = save_copies(course, own_files, "starter", State.load(course))
    write_files({drift.path: drift.after for drift in changed if drift.after is not None})
    for drift in deleted:
        drift.path.unlink()
    origin.remember(
        {course.starter(p) / file: content for p, files in wanted.items() for file, content in files.items()}
    )
    total = sum(map(len, wanted.values()))
    console.print(
        f"{_count(total)} generated from the reference: {len(changed)} written, {total - len(changed)} unchanged."
    )
    for drift in changed:
        console.print(f"  written  {_name(course, drift.path)}")
    for drift in deleted:
        console.print(f"  deleted  {_name(course, drift.path)}")
    for drift in extra:
        if drift not in deleted:
            console.print(f"  left     {_name(course, drift.path)} (not generated)")
    if copies:
        console.print(f"What was there before is in {_name(course, copies)}.")


def _name(course: Course, path: Path) -> str:
    return path.relative_to(course.root).as_posix()


def _count(number: int) -> str:
    return f"{number} file" if number == 1 else f"{number} files"
