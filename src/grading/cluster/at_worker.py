"""What a worker of the Dask cluster does, in a checkout of the course of its own."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

from distributed import get_client, get_worker

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import Course
from grading.cluster.alone import Work
from grading.cluster.parcel import Days, Graded, Parcel
from grading.running.children import STOP_SECONDS
from grading.running.rules import Judge, Rules
from grading.submissions.layout import Layout
from grading.submissions.starter import make_layouts

ASK_SECONDS = 2.0
"""How often a worker looks whether its work is still wanted."""


def fingerprint(days: Days) -> str:
    """The fingerprint of the worker's checkout.

    Raises:
        CourseError: there is none, or it can't be read.
    """
    return days.fingerprint(Course.find())


def grade_parcel(parcel: Parcel, judge: Judge) -> Graded:
    """Grade a submission in a process of its own, which ends as soon as nobody waits for the marks any more.

    Raises:
        CourseError: the worker's checkout isn't the grader's, or the process has failed.
    """
    work = Work(_rules(parcel), judge, parcel.files)
    command = [sys.executable, "-m", "grading.cluster.alone"]
    with (
        tempfile.TemporaryFile() as output,
        # In a session of its own: Ctrl-C in the worker's terminal reaches it only by the worker's end.
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, start_new_session=True) as process,
    ):
        assert process.stdin is not None
        try:
            process.stdin.write(pickle.dumps(work))
            process.stdin.flush()
            _wait(process, _is_wanted)
        finally:
            _end(process)
        output.seek(0)
        code, _, marks = output.read().partition(b"\n")
    if process.returncode != 0:
        raise CourseError(f"the process that grades has ended with exit code {process.returncode}")
    return Graded(int(code), marks)


def _rules(parcel: Parcel) -> Rules:
    course, days = Course.find(), parcel.days
    if days.fingerprint(course) != parcel.course:
        raise CourseError("its checkout of the course has changed since it was asked: start the worker again")
    manifest = load_manifest(course, days.backend.package)
    lessons = tuple(lesson for lesson in manifest.lessons if lesson.name in days.names)
    layouts = _layouts(course, days.backend, parcel.course)
    return Rules(
        course,
        lessons,
        layouts,
        days.backend,
        parcel.seed,
        parcel.course,
        parcel.draw,
        parcel.without_isolation,
    )


@lru_cache(maxsize=2)
def _layouts(course: Course, backend: Backend, version: str) -> tuple[Layout, ...]:
    """Making the starter takes seconds, so it is kept, for as long as the checkout has this fingerprint."""
    return make_layouts(course, load_manifest(course), backend)


def _wait(process: subprocess.Popen[bytes], is_wanted: Callable[[], bool]) -> None:
    """Return when the process has ended, or nobody wants its result."""
    while True:
        try:
            process.wait(ASK_SECONDS)
            return
        except subprocess.TimeoutExpired:
            if not is_wanted():
                return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close its input, by which it ends in order; kill it if that takes too long."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(3 * STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _is_wanted() -> bool:
    """Whether the scheduler still has the task, which it forgets when the grader has canceled it or has gone."""
    worker = get_worker()
    key = worker.get_current_task()
    try:
        return key in get_client().processing([worker.address])[worker.address]
    except Exception:  # whatever it is, the scheduler or this worker is about to go, and the marks with it
        return False
