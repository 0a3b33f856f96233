"""Makes the zip to upload to Gradescope: the scripts, the course, the choices, and the secret seed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from coursekit.errors import CourseError
from coursekit.files import require_writable, write_files
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from grading import fixed_zip
from grading.gradescope.course_files import course_files
from grading.gradescope.settings import ABOUT, COURSE, FAILED, FORMAT, POLICY, SEED, Settings
from grading.handing_in.packing import version
from grading.policy.policy_file import read_policy
from grading.reports.gradescope import failure_json
from grading.running.asking import Asked, chosen_lessons
from grading.running.seeds import choose_seed

SCRIPTS = ("setup.sh", "run_autograder")
LARGEST = 100 << 20
"""Bytes that Gradescope takes."""


@dataclass(frozen=True)
class Packed:
    """What a zip grades, and what that is worth, weighted as the policy says."""

    size: int
    days: tuple[str, ...]
    points: float


def write_autograder(course: Course, asked: Asked, out: Path) -> Packed:
    """Write the zip. The same course, choices and seed give the same bytes.

    Args:
        course: the instructor's checkout, which goes into the zip.
        asked: days, track, policy and seed; the rest doesn't matter.
        out: where to write; an autograder that lies there is replaced, any other file is not.

    Raises:
        CourseError: something that was asked for is wrong, or a file can't be read or written; nothing is written.
    """
    why_zip, what = "as Gradescope wants it", "an autograder of this course"
    fixed_zip.require_ours(out, ABOUT, FORMAT, what, why_zip)
    require_writable([out])
    manifest = load_manifest(course, asked.backend.package)
    policy, _ = read_policy(asked.policy, [lesson.name for lesson in manifest.lessons])
    lessons = chosen_lessons(course, manifest, asked, policy)
    packed = fixed_zip.zip_files(_contents(course, asked), dict.fromkeys(SCRIPTS, 0o755) | {SEED: 0o600})
    if len(packed) > LARGEST:
        raise CourseError(f"the zip would have {len(packed) >> 20} MiB; Gradescope takes {LARGEST >> 20}")
    _write_secret(out, packed)
    weights = {day.name: day.weight for day in policy.days}
    points = sum(weights.get(each.name, 1.0) * task.points for each in lessons for task in each.tasks)
    return Packed(len(packed), tuple(each.name for each in lessons), points)


def _contents(course: Course, asked: Asked) -> dict[str, bytes]:
    settings = Settings(course=version(course), week=asked.week, day=asked.day, backend=asked.backend)
    scripts = resources.files(__package__) / "scripts"
    never_started = failure_json("it ended before it could say why: look at the output of run_autograder")
    # A checkout on Windows may have line ends that bash doesn't understand.
    own = {name: (scripts / name).read_bytes().replace(b"\r\n", b"\n") for name in SCRIPTS}
    own |= {ABOUT: settings.text().encode(), FAILED: never_started}
    if asked.policy is not None:
        own[POLICY] = asked.policy.read_bytes()
    own[SEED] = choose_seed(course, asked.seed, asked.seed_file).encode("utf-8")
    return own | {f"{COURSE}/{name}": content for name, content in course_files(course).items()}


def _write_secret(out: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    before = os.umask(0o077)
    try:
        write_files({out: content})
    finally:
        os.umask(before)
