"""Gate: with the solution of day N and of the days that it needs, and stubs elsewhere, day N passes."""

from __future__ import annotations

from authoring.gates.gate import DAY_SECONDS, Context, Findings, day_problems
from authoring.gates.tracks import days, days_by_track, installed, missing_tracks
from authoring.gates.workers import Job, JobResult
from coursekit.backends import Backend
from coursekit.task_state import TaskState


def order(context: Context) -> Findings:
    """Run each day's tests on packages in which the days that it doesn't need, and those after it, are stubs."""
    jobs = [
        Job(
            f"Day {lesson.name} ({backend}) with stubs elsewhere",
            lesson,
            context.solved((*context.manifest.needed(lesson.name), lesson)),
            DAY_SECONDS,
            backend=backend,
        )
        for backend in Backend
        if installed(backend)
        for lesson in days(context, backend)
    ]
    results = context.run("order", jobs)
    problems = [*day_problems(results, TaskState.PASSED), *_shortcuts_taken(results)]
    return Findings(days_by_track(jobs), problems, missing_tracks(context))


def _shortcuts_taken(results: list[JobResult]) -> list[str]:
    """Calls that a task names as shortcuts although the reference itself makes them."""
    return [
        f"{result.job.name}: the reference of {task.name} calls {', '.join(task.shortcuts)}, named as a shortcut"
        for result in results
        if result.report is not None
        for task in result.report.tasks.values()
        if task.shortcuts
    ]
