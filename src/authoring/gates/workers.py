"""Spreads runs of tests over the cores: each run in a child process, on a copy of the course of its own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from authoring.gates.children import Command, end, start
from authoring.gates.scratch import Packages, lay_out
from coursekit.backends import Backend
from coursekit.manifest import Lesson
from coursekit.paths import Course
from coursekit.running.import_path import Impl
from coursekit.running.journal import load_report
from coursekit.running.results import Report
from coursekit.task_state import TaskState

PAUSE = 0.1  # seconds between two looks at the clock
OUTPUT_SHOWN = 12  # lines
OPTIONS = (
    *("-p", "coursekit.plugin", "-p", "no:cacheprovider", "-q", "--tb=short"),
    # A forked child has the plugins imported already, so pytest says that it can't rewrite their assertions.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


@dataclass(frozen=True)
class Job:
    """Tests of one day to run on given learner's packages.

    tests: ids inside the day's test file; empty for all of them.
    seconds: after which the run is ended.
    """

    name: str
    lesson: Lesson
    packages: Packages
    seconds: float
    tests: tuple[str, ...] = ()
    backend: Backend = Backend.TORCH
    stop_at_first_failure: bool = False


@dataclass(frozen=True)
class JobResult:
    """How a job ended; ``code`` is pytest's exit code, or minus the number of the signal that ended it."""

    job: Job
    code: int
    seconds: float
    timed_out: bool
    report: Report | None
    output: str

    @property
    def died(self) -> bool:
        """Whether Python itself was ended, by a signal that we didn't send."""
        return self.code < 0 and not self.timed_out

    def state(self, task: str) -> TaskState | None:
        """The state of a task; None where none of its tests ran."""
        if self.report is None or task not in self.report.tasks:
            return None
        return self.report.tasks[task].state

    def first_failure(self, task: str) -> str:
        """The first words of what is wrong with a task."""
        result = self.report.tasks.get(task) if self.report else None
        failure = result.first_failure if result else None
        return f"{failure.sentence}: {failure.message}".strip(": ") if failure else self.last_words

    @property
    def last_words(self) -> str:
        """Why there is no state to report."""
        if self.timed_out:
            return f"stopped after {self.job.seconds:.0f} s"
        if self.report is not None and self.report.errors:
            return self.report.errors[0]["message"]
        return "\n".join(self.output.strip().splitlines()[-OUTPUT_SHOWN:]) or f"exit code {self.code}"


@dataclass
class _Running:
    job: Job
    child: BaseProcess
    folder: Path
    started: float


def run_jobs(
    course: Course,
    jobs: Iterable[Job],
    workers: int,
    kernels: Path,
    one_done: Callable[[], None] = lambda: None,
) -> list[JobResult]:
    """Run every job, ``workers`` at a time. Ctrl-C ends them all, and what they wrote is removed.

    Args:
        course: the course whose tests are run; nothing in it is changed.
        jobs: taken one by one, as children become free.
        workers: how many children run at a time.
        kernels: a folder in which compiled kernels are kept, for these jobs and later ones.
        one_done: called after each.

    Returns:
        The results, in the order in which they came.
    """
    results: list[JobResult] = []
    waiting = iter(jobs)
    with _folder() as folder, _ended([]) as running:
        while True:
            while len(running) < workers and (job := next(waiting, None)) is not None:
                running.append(_start(course, job, folder, kernels))
            if not running:
                return results
            for one in list(running):
                if (result := _poll(one)) is not None:
                    running.remove(one)
                    results.append(result)
                    one_done()
            wait([one.child.sentinel for one in running], PAUSE)


def tests_of_day(course: Course, lesson: Lesson) -> Path:
    return course.tests / lesson.test_file


@contextmanager
def _folder() -> Iterator[Path]:
    # Resolved, because pytest compares paths: on some systems the temporary folder is behind a link.
    with tempfile.TemporaryDirectory(prefix="coursekit-gates-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


@contextmanager
def _ended(running: list[_Running]) -> Iterator[list[_Running]]:
    """No child of the list outlives the block."""
    try:
        yield running
    finally:
        for one in running:
            with suppress(OSError):
                end(one.child)


def _start(course: Course, job: Job, parent: Path, kernels: Path) -> _Running:
    folder = Path(tempfile.mkdtemp(dir=parent))
    root, temporary = folder / "course", folder / "tmp"
    for path in (root, temporary):
        path.mkdir()
    copy = lay_out(course, root, job.packages)
    file = str(tests_of_day(copy, job.lesson))
    arguments = [
        *OPTIONS,
        *(
            "--rootdir",
            str(root),
            "-c",
            str(root / "pyproject.toml"),
            "--basetemp",
            str(temporary / "pytest"),
        ),
        *("--tiny-llm-root", str(root), "--impl", Impl.LEARNER, "--backend", job.backend),
        *("--coursekit-report", str(folder / "report.json")),
        *(["-x"] if job.stop_at_first_failure else []),
        *([f"{file}::{test}" for test in job.tests] or [file]),
    ]
    # A folder for each day: Numba loses entries when two children add to the same one, as those of two days would.
    child = start(Command(arguments, root, temporary, folder / "output.txt", kernels / job.lesson.name))
    return _Running(job, child, folder, time.monotonic())


def _poll(running: _Running) -> JobResult | None:
    seconds = time.monotonic() - running.started
    code = running.child.exitcode
    timed_out = code is None and seconds > running.job.seconds
    if code is None and not timed_out:
        return None
    end(running.child)  # when it has ended by itself: whatever its tests left behind
    return _result(running, -1 if code is None else code, seconds, timed_out)


def _result(running: _Running, code: int, seconds: float, timed_out: bool) -> JobResult:
    report_file, output_file = running.folder / "report.json", running.folder / "output.txt"
    report = load_report(report_file, code, running.folder / "course")
    output = output_file.read_text(encoding="utf-8", errors="replace") if output_file.is_file() else ""
    shutil.rmtree(running.folder, ignore_errors=True)
    return JobResult(running.job, code, seconds, timed_out, report, output)
