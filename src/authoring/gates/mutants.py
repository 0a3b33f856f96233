"""Gate: the tests notice every mistake that a learner is likely to make."""

from __future__ import annotations

from dataclasses import dataclass

from authoring.gates.day_tests import tests_of_task
from authoring.gates.gate import DAY_SECONDS, Context, Findings, day_problems, indented
from authoring.gates.mutant_file import Mutant, MutantFile
from authoring.gates.tracks import installed, tracks_of
from authoring.gates.workers import Job, JobResult
from authoring.progress import count
from coursekit.backends import Backend
from coursekit.manifest import Lesson
from coursekit.task_state import TaskState

# A mutant may take this many times as long as the whole day on the reference, and may take this long in any case.
PATIENCE = 5
LEAST_SECONDS = 20.0


@dataclass(frozen=True)
class Planted:
    """A mutant, its day and the backend that it is run with."""

    mutant: Mutant
    lesson: Lesson
    backend: Backend

    @property
    def label(self) -> str:
        task = self.mutant.task
        return f"{task.name} {task.title}: {self.mutant.why!r} ({self.mutant.place})"


def mutants(context: Context) -> Findings:
    """Run its task's tests on every mutant, after the whole day on the reference, which must pass."""
    findings = Findings()
    planted = _read(context, findings)
    limits = _limits(context, planted, findings)
    runnable = [one for one in planted if (one.lesson.name, one.backend) in limits]
    jobs = [_job(context, one, limits[one.lesson.name, one.backend]) for one in runnable]
    found = 0
    for one, result in zip(runnable, context.run("mutants", jobs), strict=True):
        survival = _survival(one.mutant, result)
        found += survival is None
        if (fault := survival or _silence(one.mutant, result)) is not None:
            findings.problems.append(f"{one.label} {fault}")
        elif result.timed_out:
            findings.notes.append(f"{one.label} never ends: it was {result.last_words}")
        if context.messages:
            findings.notes.append(f"{one.label} reads{indented(result.first_failure(one.mutant.task.name))}")
    tasks = len({one.mutant.task.name for one in planted})
    left = f", {len(planted) - len(jobs)} not run" if len(planted) > len(jobs) else ""
    findings.looked_at = f"{found} of {count(len(jobs), 'mutant')} found{left}, {count(tasks, 'task')}"
    return findings


def _read(context: Context, findings: Findings) -> list[Planted]:
    """Every mutant of the days to look at that can be run here."""
    planted = []
    for lesson in context.lessons:
        file = MutantFile(context.course, lesson, context.reference)
        planted += [_planted(mutant, lesson) for mutant in file.read()]
        findings.problems += file.problems
        findings.problems += [
            f"{task.name} {task.title} has no tests to run on its mutants"
            for day in tracks_of(lesson)
            for task in day.tasks
            if not tests_of_task(context.course, day, task)
        ]
    for backend in sorted({one.backend for one in planted if not installed(one.backend)}):
        findings.notes.append(f"{backend} is not installed here, so its mutants were not run")
    return [
        one
        for one in planted
        if installed(one.backend) and tests_of_task(context.course, one.lesson, one.mutant.task)
    ]


def _planted(mutant: Mutant, lesson: Lesson) -> Planted:
    return Planted(mutant, lesson.on(mutant.track), Backend.of(mutant.track))


def _limits(context: Context, planted: list[Planted], findings: Findings) -> dict[tuple[str, Backend], float]:
    """By day and backend, how long a mutant may run. Days that fail without any mutant are problems, and left out.

    Were the day's tests to fail on the reference too, their failing on a mutant would say nothing.
    """
    days = {(one.lesson.name, one.backend): one.lesson for one in planted}
    jobs = [
        Job(
            f"Day {name} ({backend}) on the reference",
            lesson,
            context.reference,
            DAY_SECONDS,
            backend=backend,
        )
        for (name, backend), lesson in days.items()
    ]
    limits = {}
    for result in context.run("mutants: days without any", jobs):
        problems = day_problems([result], TaskState.PASSED)
        findings.problems += problems
        if not problems:
            limit = max(LEAST_SECONDS, PATIENCE * result.seconds)
            limits[result.job.lesson.name, result.job.backend] = limit
    return limits


def _job(context: Context, one: Planted, seconds: float) -> Job:
    mutant = one.mutant
    files = {**context.reference[mutant.package], mutant.file: mutant.content}
    return Job(
        one.label,
        one.lesson,
        {**context.reference, mutant.package: files},
        seconds,
        tests_of_task(context.course, one.lesson, mutant.task),
        one.backend,
        stop_at_first_failure=True,
    )


def _survival(mutant: Mutant, result: JobResult) -> str | None:
    """Why the mutant does not count as found, or None where it does."""
    if result.timed_out or result.died:
        return None
    state = result.state(mutant.task.name)
    if state in (TaskState.WRONG, TaskState.CRASHED):
        return None
    if state == TaskState.PASSED:
        return "survives: the task's tests pass"
    if state == TaskState.NOT_STARTED:
        return "reads 'not started': a mutant is a mistake, not a stub"
    return f"gave no result{indented(result.last_words)}"


def _silence(mutant: Mutant, result: JobResult) -> str | None:
    """What the learner is told instead of the words that the mutant asks for, or None where they are there."""
    told = result.first_failure(mutant.task.name)
    if mutant.says is None or _plain(mutant.says) in _plain(told):
        return None
    return f"is found, but the message does not say {mutant.says!r}{indented(told)}"


def _plain(text: str) -> str:
    """The text without regard to case and line breaks."""
    return " ".join(text.casefold().split())
