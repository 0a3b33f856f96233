"""Gate: the starter is what the reference gives, and an untouched one reads "not started" in every task."""

from __future__ import annotations

from authoring.gates.gate import DAY_SECONDS, Context, Findings, day_problems, indented
from authoring.gates.tracks import jobs_of_tracks, missing_tracks
from authoring.progress import count
from authoring.starter import drifted, wanted_files
from coursekit.task_state import TaskState


def starter(context: Context) -> Findings:
    """Compare `src` with what is generated, then run every day's tests on a fresh starter."""
    course = context.course
    wanted = wanted_files(course, context.manifest)
    problems = [
        f"{drift.path.relative_to(course.root).as_posix()} {drift.kind}; `pdm run starter` generates it anew"
        + indented("\n".join(drift.diff()))
        for drift in drifted(course, wanted)
    ]
    jobs = jobs_of_tracks(context, "the untouched starter", wanted, DAY_SECONDS)
    problems += day_problems(context.run("starter", jobs), TaskState.NOT_STARTED)
    files, tasks = sum(map(len, wanted.values())), sum(len(job.lesson.tasks) for job in jobs)
    return Findings(
        f"{count(files, 'file')}, {count(tasks, 'task')} not started", problems, missing_tracks(context)
    )
