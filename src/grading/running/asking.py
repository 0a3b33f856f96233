"""From the arguments of the command to a run over a class, and its exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.manifest import Lesson, Manifest, load_manifest
from coursekit.paths import Course
from coursekit.running.selection import lessons_of
from coursekit.tracks import covers, track_refusal
from grading.policy.policy import Policy
from grading.policy.policy_file import POLICY_FILE, read_policy
from grading.running.children import RunJobs, run_jobs
from grading.running.class_run import ClassRun, grade_class, plan_run
from grading.running.fingerprints import course_fingerprint, draw_fingerprint
from grading.running.kept import Kept
from grading.running.machine import default_jobs
from grading.running.rules import Judge, Rules, Write
from grading.running.seeds import choose_seed
from grading.submissions.entries import list_entries
from grading.submissions.members import shown
from grading.submissions.roster import read_roster
from grading.submissions.starter import make_layouts

GRADER_FAILED = 1
"""The exit code where the grader has failed on a submission; all others are graded."""
BARE = (
    "Nothing kept their code from the tests, the reference, other submissions, your files and the network; "
    "a run without --without-isolation grades them again"
)

Elsewhere = Callable[[Callable[[str], None]], RunJobs]
"""What gives other machines to grade on; it gets what shows the instructor a line."""


@dataclass(frozen=True)
class Asked:
    """The arguments of the command."""

    folder: Path
    week: int | None = None
    day: int | None = None
    backend: Backend = Backend.TORCH
    roster: Path | None = None
    policy: Path | None = None
    out: Path | None = None
    jobs: int | None = None
    seed: str | None = None
    seed_file: Path | None = None
    again: bool = False
    dry_run: bool = False
    similar: bool = False
    without_isolation: bool = False


def run_grade(
    course: Course, asked: Asked, judge: Judge, write: Write, elsewhere: Elsewhere | None = None
) -> int:
    """Do what the command does, with any judge and any reports, here or elsewhere.

    Returns:
        the exit code.

    Raises:
        CourseError: something that was asked for is wrong, before anything is graded.
        KeyboardInterrupt: all processes have ended; what was graded is kept.
    """
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    run = prepare(course, asked, progress, elsewhere)
    if asked.dry_run:
        for line in plan_run(run, progress).lines():
            console.print(line, soft_wrap=True, markup=False)
        return 0
    outcome = grade_class(run, judge, write, progress)
    for marks in outcome.marks.values():
        if marks.refusal:
            _warn(progress, f"{shown(marks.submission)}: {marks.refusal}")
    if bare := sum(marks.without_isolation for marks in outcome.marks.values()):
        _warn(progress, f"graded without isolation, with limits only: {bare} of {len(outcome.marks)}. {BARE}")
    ids = {marks.student.id for marks in outcome.marks.values()} | {one.student.id for one in run.roster}
    for learner in sorted(run.policy.extensions.keys() - ids):
        _warn(progress, f"the policy extends the time of {shown(learner)}, of whom there is nothing here")
    console.print(f"{outcome.describe()}; marks in {run.kept.marks}", soft_wrap=True, markup=False)
    return GRADER_FAILED if outcome.failed else 0


def prepare(course: Course, asked: Asked, progress: Console, elsewhere: Elsewhere | None = None) -> ClassRun:
    """Read all that a run needs beside the submissions.

    Raises:
        CourseError: something that was asked for is wrong.
    """
    manifest = load_manifest(course, asked.backend.package)
    kept = Kept(_out(asked))
    policy_file = asked.policy or asked.folder / POLICY_FILE
    there = asked.policy is not None or policy_file.is_file()
    known = [lesson.name for lesson in manifest.lessons]
    policy, zone = read_policy(policy_file if there else None, known)
    listed = () if asked.roster is None else read_roster(asked.roster, zone)
    own = [policy_file, *(path for path in (asked.roster, asked.seed_file) if path is not None)]
    entries, others = list_entries(asked.folder, own)
    if others:
        _warn(progress, f"not submissions, so left out: {', '.join(shown(name) for name in others)}")
    rules = make_rules(course, manifest, asked, policy)
    where: RunJobs = run_jobs
    jobs = asked.jobs or default_jobs()
    if elsewhere is not None:
        where = elsewhere(lambda line: _warn(progress, line))
        jobs = asked.jobs or sys.maxsize  # the workers say how many they take
    return ClassRun(rules, policy, entries, listed, kept, jobs, asked.again, asked.similar, where)


def make_rules(course: Course, manifest: Manifest, asked: Asked, policy: Policy) -> Rules:
    """What decides on points, of what was asked for.

    Raises:
        CourseError: there are no such days, none of them counts, or the seed can't be read.
    """
    lessons = chosen_lessons(course, manifest, asked, policy)
    seed = choose_seed(course, asked.seed, asked.seed_file)
    layouts = make_layouts(course, manifest, asked.backend)
    course_hash = course_fingerprint(course, lessons, asked.backend)
    draw, bare = draw_fingerprint(seed), asked.without_isolation
    return Rules(course, lessons, layouts, asked.backend, seed, course_hash, draw, bare)


def _out(asked: Asked) -> Path:
    folder = asked.folder.resolve()
    out = (asked.out or folder.with_name(f"{folder.name}-grades")).resolve()
    if out.is_relative_to(folder):
        raise CourseError(
            f"{out} lies in {folder}, where all is taken for submissions: name another with --out"
        )
    return out


def chosen_lessons(course: Course, manifest: Manifest, asked: Asked, policy: Policy) -> tuple[Lesson, ...]:
    """The days that were asked for, or all; of these the ones that the policy names, and that the track covers.

    Raises:
        CourseError: there are no such days, or none of them counts.
    """
    if asked.week is None and asked.day is not None:
        raise CourseError(f"--day {asked.day} of which week? Name it with --week")
    chosen = manifest.lessons if asked.week is None else lessons_of(manifest, asked.week, asked.day)
    there = tuple(lesson for lesson in chosen if covers(course, asked.backend.package, lesson))
    if not there:
        raise CourseError(track_refusal(course, asked.backend.package, manifest))
    named = {day.name for day in policy.days}
    counting = tuple(lesson for lesson in there if not named or lesson.name in named)
    if not counting:
        raise CourseError("none of these days counts: add one to the policy, or ask for another")
    return counting


def _warn(progress: Console, line: str) -> None:
    progress.print(line, style="yellow", soft_wrap=True, markup=False)
