"""Gate: with the solution of day N and of the days that it needs, and stubs elsewhere, day N passes."""

from __future__ import annotations

from authoring.gates.gate import DAY_SECONDS, Context, Findings, day_problems
from authoring.gates.tracks import days, days_by_track, installed, missing_tracks
from authoring.gates.workers import Job
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
    problems = day_problems(context.run("order", jobs), TaskState.PASSED)
    return Findings(days_by_track(jobs), problems, missing_tracks(context))
