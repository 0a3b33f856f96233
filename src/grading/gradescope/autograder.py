"""Grades one submission at Gradescope: `python -m grading.gradescope.autograder SOURCE SUBMISSION METADATA RESULTS`.

SOURCE is the unpacked zip, SUBMISSION the learner's files, METADATA Gradescope's file about it, RESULTS is written.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.interrupts import leaving_when_terminated
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from grading.gradescope.metadata import HandIn, read_metadata
from grading.gradescope.settings import COURSE, POLICY, SEED, read_settings
from grading.judging import judge
from grading.marks import Marks
from grading.policy.lateness import apply
from grading.policy.policy import Policy
from grading.policy.policy_file import read_policy
from grading.reports.gradescope import failure_json, results_json
from grading.running.asking import Asked, make_rules
from grading.running.children import marks_of, run_jobs
from grading.running.one import reason_of, refused_marks
from grading.running.rules import Job, Judge, Rules, Surveyed
from grading.running.survey import survey
from grading.submissions.entries import Entry

BARE = (
    "nothing kept the code from the tests, the reference, the seed and this page: read it before you trust it"
)


def main() -> None:
    """Write the results, of a failure as well."""
    source, submission, metadata, results = map(Path, sys.argv[1:])
    with leaving_when_terminated():
        write_files({results: results_of(source, submission, metadata, judge)})


def results_of(source: Path, submission: Path, metadata: Path, judged_by: Judge) -> bytes:
    """``results.json`` of a submission; where the grader fails, one that says so."""
    try:
        return _graded(source, submission, read_metadata(metadata), judged_by)
    except Exception as error:
        print(reason_of(error), file=sys.stderr)
        return failure_json(reason_of(error))


def _graded(source: Path, submission: Path, hand_in: HandIn, judged_by: Judge) -> bytes:
    course = Course(source / COURSE)
    rules, policy = _rules(course, source)
    (surveyed,) = survey([Entry(submission)], (), rules.layouts, False)
    surveyed = replace(
        surveyed,
        student=hand_in.student,
        submitted=hand_in.submitted,
        notes=(*surveyed.notes, *hand_in.notes),
    )
    marks = refused_marks(rules, surveyed) if surveyed.refusal else _marks(rules, surveyed, judged_by)
    marks = apply(policy, marks)
    return results_json(marks, for_instructor=_told(marks))


def _rules(course: Course, source: Path) -> tuple[Rules, Policy]:
    settings = read_settings(source)
    manifest = load_manifest(course, settings.backend.package)
    policy_file = source / POLICY
    policy, _ = read_policy(
        policy_file if policy_file.is_file() else None, [lesson.name for lesson in manifest.lessons]
    )
    asked = Asked(
        source,
        settings.week,
        settings.day,
        settings.backend,
        seed_file=source / SEED,
        without_isolation=True,
    )
    return make_rules(course, manifest, asked, policy), policy


def _marks(rules: Rules, surveyed: Surveyed, judged_by: Judge) -> Marks:
    """In a process of its own, as in a class: whatever becomes of that, this one goes on.

    Raises:
        CourseError: the grader has failed.
    """
    with tempfile.TemporaryDirectory(prefix="autograder-", ignore_cleanup_errors=True) as name:
        job = Job(rules, surveyed, Path(name) / "marks.json", Path(name))
        with closing(run_jobs([job], judged_by, 1, lambda: None)) as ended:
            ((_, code),) = ended
        marks = marks_of(job, code)
    if code:
        raise CourseError("; ".join(marks.notes))
    return marks


def _told(marks: Marks) -> tuple[str, ...]:
    """What only the instructor sees."""
    as_root = ", as root" if hasattr(os, "geteuid") and os.geteuid() == 0 else ""
    isolation = (f"isolation: {marks.isolation}{as_root}",) if marks.isolation else ()
    return (*isolation, *((BARE,) if marks.without_isolation else ()), *marks.notes)


if __name__ == "__main__":
    main()
