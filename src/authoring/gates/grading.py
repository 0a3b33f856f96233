"""Gate: shut in as in grading, the reference earns every point, and an untouched starter none."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from authoring.gates.gate import Context, Findings, indented
from authoring.gates.scratch import Packages
from authoring.gates.tracks import days, installed, missing_tracks
from authoring.progress import Meter, count
from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.manifest import Lesson
from coursekit.task_state import TaskState
from grading.judging import judge
from grading.marks import DayMark, Student, read_marks
from grading.running.children import run_jobs
from grading.running.rules import Job, Judge, Rules, Surveyed
from grading.sandbox.choosing import choose
from grading.submissions.entries import Entry
from grading.submissions.layout import Layout
from grading.submissions.starter import make_layouts

SEED = "the gate's own draw"
"""Other inputs than a learner's runs have: a test that holds only for those is found here."""
REFERENCE, STARTER = "the reference", "the untouched starter"
WANTED = {REFERENCE: TaskState.PASSED, STARTER: TaskState.NOT_STARTED}


def grading(context: Context) -> Findings:
    """Grade the reference and a fresh starter day by day; where code can't be shut in, say so."""
    try:
        isolation = choose()
    except CourseError as error:
        return Findings("not run", notes=[str(error)])
    problems, jobs = grade_all(context, judge)
    return Findings(f"{count(jobs, 'day')} graded, {isolation.name}", problems, missing_tracks(context))


def grade_all(context: Context, judged_by: Judge) -> tuple[list[str], int]:
    """What is wrong with the marks of both, and how many days were graded."""
    with tempfile.TemporaryDirectory(prefix="coursekit-grading-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        entries = {
            REFERENCE: _hand_in(folder / "reference", context.reference),
            STARTER: _hand_in(folder / "starter", context.solved(())),
        }
        layouts = {
            backend: make_layouts(context.course, context.manifest, backend)
            for backend in Backend
            if installed(backend)
        }
        jobs = [
            Job(_rules(context, lesson, backend, counted), Surveyed(entry, Student(who)), target, folder)
            for who, entry in entries.items()
            for backend, counted in layouts.items()
            for lesson in days(context, backend)
            for target in [folder / f"{lesson.name} {backend} {entry.name}.json"]
        ]
        return list(_problems(jobs, _run(context, jobs, judged_by))), len(jobs)


def _hand_in(folder: Path, packages: Packages) -> Entry:
    """A submission of all files of the packages."""
    write_files(
        {
            folder / "src" / package / file: content
            for package, files in packages.items()
            for file, content in files.items()
        }
    )
    return Entry(folder)


def _rules(context: Context, lesson: Lesson, backend: Backend, layouts: tuple[Layout, ...]) -> Rules:
    return Rules(context.course, (lesson,), layouts, backend, SEED, course_hash="", draw="")


def _run(context: Context, jobs: list[Job], judged_by: Judge) -> dict[Path, int]:
    """Grade them all; the exit codes of their processes by the files of their marks."""
    codes = {}
    with (
        Meter(context.console, "grading", len(jobs)) as meter,
        closing(run_jobs(jobs, judged_by, context.workers, lambda: None)) as ended,
    ):
        for job, code in ended:
            codes[job.target] = code
            meter.advance()
    return codes


def _problems(jobs: list[Job], codes: Mapping[Path, int]) -> Iterator[str]:
    for job in jobs:
        (lesson,), who = job.rules.lessons, job.surveyed.student.id
        place = f"Day {lesson.name} ({job.rules.backend}) of {who}"
        if not job.target.is_file():
            yield f"{place}: the grader's process ended with {codes[job.target]}"
            continue
        marks = read_marks(job.target)
        if marks.refusal:
            notes = "\n".join(marks.notes)
            yield f"{place}: {marks.refusal}{indented(notes)}"
        for day in marks.days if not marks.refusal else ():
            yield from (f"{place}: {problem}" for problem in _problems_of(day, WANTED[who]))


def _problems_of(day: DayMark, wanted: TaskState) -> Iterator[str]:
    for task in day.tasks:
        if task.state not in (wanted, TaskState.SKIPPED) or task.shortcuts:
            why = ": ".join(part for part in (task.sentence, task.failure) if part)
            yield f"{task.name} {task.title} is '{task.state}', not '{wanted}'{indented(why)}"
