"""Gate: the reference of the MLX track passes the days that it covers."""

from __future__ import annotations

from authoring.gates.gate import DAY_SECONDS, Context, Findings, day_problems
from authoring.gates.tracks import OTHER_BACKENDS, jobs_of_tracks, missing_tracks
from authoring.progress import count
from coursekit.task_state import TaskState


def mlx(context: Context) -> Findings:
    """Run the days' tests with the MLX backend; where MLX is not installed, say so."""
    jobs = jobs_of_tracks(context, "the reference", context.reference, DAY_SECONDS, OTHER_BACKENDS)
    problems = day_problems(context.run("mlx", jobs), TaskState.PASSED)
    return Findings(count(len(jobs), "day"), problems, missing_tracks(context))
