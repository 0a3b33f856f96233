"""What every gate is given, and what it gives back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rich.console import Console

from authoring.gates.workers import Job, JobResult, run_jobs
from authoring.progress import Meter
from coursekit.editing.assembly import assemble
from coursekit.manifest import Lesson, Manifest, load_manifest
from coursekit.paths import PACKAGES, Course
from coursekit.task_state import TaskState

# A day's tests take under ten seconds; a slow machine, busy with other things, is given this much.
DAY_SECONDS = 180.0


@dataclass
class Findings:
    """What a gate looked at (with numbers), what is wrong, and what is worth knowing though it is not wrong."""

    looked_at: str = ""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Context:
    """The course, the day to keep to (None for all), where to show progress, how many children at a time.

    messages: whether the gate of mutants notes what a learner with each mistake would read.
    seed: which random steps the long gate runs.
    """

    course: Course
    console: Console
    workers: int
    day: str | None = None
    messages: bool = False
    seed: int = 0

    @cached_property
    def manifest(self) -> Manifest:
        return load_manifest(self.course)

    @property
    def lessons(self) -> tuple[Lesson, ...]:
        """The days to look at."""
        return self.manifest.lessons if self.day is None else (self.manifest.lesson(self.day),)

    @cached_property
    def reference(self) -> dict[str, dict[str, bytes]]:
        """The files of every package of the reference."""
        return self.solved(self.manifest.lessons)

    def solved(self, lessons: Iterable[Lesson]) -> dict[str, dict[str, bytes]]:
        """Every package as a learner has it who has done these days: the reference there, stubs elsewhere."""
        days = list(lessons)
        return {
            package: assemble(
                self.course, self.manifest, package, {r for day in days for r in day.on(package).functions}
            )
            for package in PACKAGES
        }

    @cached_property
    def _kernels(self) -> tempfile.TemporaryDirectory[str]:
        """Where children keep compiled kernels for those after them; removed with the context."""
        return tempfile.TemporaryDirectory(prefix="coursekit-kernels-", ignore_cleanup_errors=True)

    def run(self, title: str, jobs: list[Job]) -> list[JobResult]:
        """Run the jobs, showing progress. The results come in the order of the jobs."""
        with Meter(self.console, title, len(jobs)) as meter:
            results = run_jobs(self.course, jobs, self.workers, Path(self._kernels.name), meter.advance)
        order = {id(job): place for place, job in enumerate(jobs)}
        return sorted(results, key=lambda result: order[id(result.job)])


Gate = Callable[[Context], Findings]


def day_problems(results: Iterable[JobResult], wanted: TaskState) -> list[str]:
    """The tasks, of days that were run whole, that are not in the state that they should be in."""
    problems = []
    for result in results:
        for task in result.job.lesson.tasks:
            state = result.state(task.name)
            if state != wanted:
                was = f"is '{state}'" if state else "has no result"
                problems.append(
                    f"{result.job.name}: {task.name} {task.title} {was}, not '{wanted}'"
                    f"{indented(result.first_failure(task.name))}"
                )
        if result.report is not None and not result.report.finished:
            problems.append(f"{result.job.name}: the run broke off{indented(result.last_words)}")
    return problems


def indented(text: str) -> str:
    """The text, a few spaces in, on lines of its own."""
    return "".join(f"\n    {line}" for line in text.splitlines())
