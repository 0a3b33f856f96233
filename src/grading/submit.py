"""`pdm run submit`: the file to hand in, and what the grader will see in it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.files import require_writable, write_files
from coursekit.interrupts import leaving_when_terminated
from coursekit.learner.state import State
from coursekit.manifest import Lesson, Manifest, load_manifest
from coursekit.paths import Course
from coursekit.running.screen import Screen
from grading.handing_in.outlook import Outlook, from_records, from_report
from grading.handing_in.packing import pack, require_ours
from grading.handing_in.printing import show_obstacles, show_tasks
from grading.handing_in.work import Work, collect
from grading.judging import Judged, judge
from grading.running.rules import Judge
from grading.sandbox.limits_only import LimitsOnly

DEFAULT = "submission.zip"
SEED = "submit"
"""What the check draws from: the instructor's own seed draws other sizes and numbers."""


def submit(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help=f"The zip file to write; by default {DEFAULT} in the course's folder."
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="Run the tests in the grader's way, or go by your last runs."
        ),
    ] = True,
) -> None:
    """Make the zip to hand in, and show what the grader will see in it.

    Only the files with tasks in them count, and only they are handed in. The same code gives the same bytes.
    """
    course = Course.find()
    console = Console(highlight=False)
    with leaving_when_terminated():
        hand_in(course, out or course.root / DEFAULT, console, judge if check else None)


def hand_in(course: Course, out: Path, console: Console, judge: Judge | None) -> None:
    """Show what the grader will see, then write the zip.

    Args:
        course: the learner's checkout.
        out: where to write; a submission that lies there is replaced, any other file is not.
        console: where to print.
        judge: runs the tests in the grader's way; None to go by the records of earlier runs.

    Raises:
        CourseError: nothing is written yet, or a file can't be read or written.
    """
    require_ours(out)
    require_writable([out])
    manifest, state, screen = load_manifest(course), State.load(course), Screen(console)
    works = [collect(course, manifest, backend.package) for backend in Backend]
    works = [work for work in works if work.begun]
    if not works:
        raise CourseError("there is nothing to hand in: every task is still a stub")
    packed = pack(course, works)
    for work in works:
        outlooks, source = _outlooks(course, manifest, work, state, judge)
        show_tasks(screen, manifest, work, outlooks, source)
        show_obstacles(screen, work)
    write_files({out: packed})
    screen.print()
    screen.print(f"Hand in: {out} ({len(packed):,} bytes)", style="bold green")


def _outlooks(
    course: Course, manifest: Manifest, work: Work, state: State, judge: Judge | None
) -> tuple[list[Outlook], str]:
    """The tasks of the days that are begun, and from where they are known."""
    lessons = work.begun
    recorded = from_records(course, work, lessons, state)
    if judge is None:
        return recorded, "by your last runs"
    try:
        judged = _run(course, manifest, work, lessons, judge)
    except CourseError as error:
        return recorded, f"by your last runs: the tests could not be run in the grader's way: {error}"
    return from_report(work, lessons, judged.report, state), _said(judged.isolation)


def _said(isolation: str) -> str:
    """Your own code needs no isolation from you; but what it does outside of its folder fails only with one."""
    if isolation == LimitsOnly.name:
        return f"isolation: none here, {isolation}; where code is shut in, what reaches outside fails"
    return f"isolation: {isolation}"


def _run(course: Course, manifest: Manifest, work: Work, lessons: Sequence[Lesson], judge: Judge) -> Judged:
    """Run the tests on the files that count, laid over a fresh starter."""
    backend = next(one for one in Backend if one.package == work.package)
    borrowed = [] if backend is Backend.TORCH else [collect(course, manifest, Backend.TORCH.package)]
    with tempfile.TemporaryDirectory(prefix="submit-") as name:
        folder = Path(name)
        write_files(
            {
                folder / one.package / file: content
                for one in (*borrowed, work)
                for file, content in one.over_starter.items()
            }
        )
        return judge(course, folder, lessons, SEED, backend, True)
