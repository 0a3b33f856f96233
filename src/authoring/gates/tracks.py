"""The tracks of the course (torch, MLX) that can be run here, and the days that each covers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec

from authoring.gates.gate import Context
from authoring.gates.scratch import Packages
from authoring.gates.workers import Job
from authoring.progress import count
from coursekit.backends import Backend
from coursekit.manifest import Lesson
from coursekit.tracks import covers

# The suite runs on torch; the days of the other tracks are run apart.
OTHER_BACKENDS = tuple(backend for backend in Backend if backend is not Backend.TORCH)


def jobs_of_tracks(
    context: Context,
    name: str,
    packages: Packages,
    seconds: float,
    backends: Sequence[Backend] = tuple(Backend),
) -> list[Job]:
    """A job for every day of every track that is installed."""
    return [
        Job(f"Day {lesson.name} ({backend}) on {name}", lesson, packages, seconds, backend=backend)
        for backend in backends
        if installed(backend)
        for lesson in days(context, backend)
    ]


def days(context: Context, backend: Backend) -> list[Lesson]:
    """The days to look at that the backend's track covers."""
    days = (lesson.on(backend.package) for lesson in context.lessons)
    return [lesson for lesson in days if covers(context.course, backend.package, lesson)]


def tracks_of(lesson: Lesson) -> tuple[Lesson, ...]:
    """The day once for all tracks, or once for each where they differ."""
    return tuple(lesson.on(backend.package) for backend in Backend) if lesson.differs_by_track else (lesson,)


def days_by_track(jobs: Sequence[Job]) -> str:
    """ "7 days (torch), 4 days (mlx)"."""
    numbers = Counter(job.backend for job in jobs)
    return ", ".join(f"{count(number, 'day')} ({backend})" for backend, number in numbers.items())


def missing_tracks(context: Context) -> list[str]:
    """A line for every track with days to look at that can't be run here."""
    return [
        f"{backend} is not installed here: {count(len(days(context, backend)), 'day')} of its track not run"
        for backend in Backend
        if not installed(backend) and days(context, backend)
    ]


def installed(backend: Backend) -> bool:
    """Whether the framework is there, asked without importing it."""
    return find_spec(backend) is not None
