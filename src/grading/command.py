"""`pdm run grade`: grades what the learners of a class have handed in."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated

import typer

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.interrupts import leaving_when_terminated
from coursekit.paths import Course
from grading.cluster.address import on_cluster
from grading.gradescope.making import make_autograder
from grading.judging import isolation_here, judge
from grading.marks import Marks
from grading.reports.formats import Format
from grading.reports.writing import write_reports
from grading.running.asking import Asked, run_grade
from grading.running.rules import Write
from grading.running.seeds import VARIABLE

USUAL = frozenset({Format.HTML, Format.CSV, Format.JSON})
"""The reports of a run that asks for none."""


def grade(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            help="A folder with an entry per learner: a folder, a zip or tar file, a git repository. "
            "Only --gradescope needs none.",
            show_default=False,
        ),
    ] = None,
    week: Annotated[int | None, typer.Option(min=1, help="Grade the days of this week.")] = None,
    day: Annotated[int | None, typer.Option(min=1, help="Grade this day of the week.")] = None,
    backend: Annotated[
        Backend, typer.Option(help="Whose package: torch is tiny_llm, mlx is tiny_llm_mlx.")
    ] = Backend.TORCH,
    roster: Annotated[
        Path | None,
        typer.Option(help="A CSV file with a row per learner: id, name, email, perhaps submitted."),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="Weights, due dates, late days; left out: DIR/course.toml, if it is there."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write into; left out: DIR-grades, beside DIR.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            max=256,
            help="How many submissions at the same time; left out: half of the cores, or all that a cluster takes.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Grade on the workers of the Dask cluster with this scheduler."),
    ] = None,
    seed: Annotated[
        str | None,
        typer.Option(help=f"Your secret; better by --seed-file or {VARIABLE}, since shells keep commands."),
    ] = None,
    seed_file: Annotated[Path | None, typer.Option(help="A file that holds your secret.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Grade also what hasn't changed.")] = False,
    report: Annotated[
        list[Format] | None,
        typer.Option(help="A kind of report; may be given several times. Left out: html, csv and json."),
    ] = None,
    similar: Annotated[
        bool, typer.Option("--similar", help="Also list similar submissions, for you to look at.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be graded; nothing is written.")
    ] = False,
    without_isolation: Annotated[
        bool,
        typer.Option(
            "--without-isolation",
            help="Where there is no isolation, go on with limits only: nothing keeps a learner's code from your "
            "files. The reports say so, and a later run without this option grades these submissions again.",
        ),
    ] = False,
    gradescope: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.zip",
            help="Grade nothing: write the autograder to upload to Gradescope. It holds the course and your seed, "
            "and goes by --week, --day, --backend and --policy.",
        ),
    ] = None,
) -> None:
    """Grade the submissions of a class, each with its code in a process of its own.

    What was graded before, and has not changed, is kept; so Ctrl-C loses only the submissions at work.

    Exit code: 0, all are graded or refused; 1, the grader itself failed on some, which the next run tries again;
    2, nothing was graded, for the reason that is shown; 130, Ctrl-C.
    """
    asked = Asked(
        folder or Path(),
        week,
        day,
        backend,
        roster,
        policy,
        out,
        jobs,
        seed,
        seed_file,
        again,
        dry_run,
        similar,
        without_isolation,
    )
    elsewhere = None if scheduler is None else functools.partial(on_cluster, scheduler)
    with leaving_when_terminated():
        if gradescope is not None:
            given = {"DIR": folder, "--report": report, "--scheduler": scheduler}
            make_autograder(asked, gradescope, [name for name, value in given.items() if value])
            return
        if folder is None:
            raise CourseError("name the folder of the submissions: pdm run grade DIR")
        if elsewhere is None and not dry_run:
            isolation_here(without_isolation)  # now, and not once per submission
        code = run_grade(Course.find(), asked, judge, report_writer(report or ()), elsewhere)
    raise typer.Exit(code)


def report_writer(formats: Collection[Format]) -> Write:
    """What writes reports of these formats beside the marks; the usual ones where there is none."""

    def write(marks: Sequence[Marks], out: Path) -> None:
        write_reports(marks, out, frozenset(formats) or USUAL)

    return write
