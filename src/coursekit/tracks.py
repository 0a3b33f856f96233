"""The two tracks of the course: which days the MLX one covers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from coursekit.backends import Backend
from coursekit.lessons.outline import functions, parse, read_source
from coursekit.manifest import Lesson, Manifest
from coursekit.paths import Course
from coursekit.track_files import solution_file


def covers(course: Course, package: str, lesson: Lesson) -> bool:
    """Whether the track of ``package`` has a reference of every function that the day asks for."""
    if package == Backend.TORCH.package:
        return True
    return all(
        ref.qualname in _defined(solution_file(course, package, ref.file))
        for ref in lesson.on(package).functions
    )


def covered(course: Course, package: str, manifest: Manifest) -> tuple[Lesson, ...]:
    """The days of ``manifest`` that ``package`` covers, in order, as its track has them."""
    return tuple(lesson for lesson in manifest.on(package).lessons if covers(course, package, lesson))


def track_refusal(course: Course, package: str, manifest: Manifest) -> str:
    """What to tell someone who asks for a day that the track does not cover."""
    days = covered(course, package, manifest)
    if not days:
        return "the MLX track covers no day of this course yet: leave --backend mlx out"
    return f"the MLX track covers days {name_days(days, manifest)}: leave --backend mlx out for the others"


def name_days(days: tuple[Lesson, ...], manifest: Manifest) -> str:
    """Days that follow one another joined: "1.1–1.4, 2.4"."""
    runs: list[list[Lesson]] = []
    names = {
        lesson.name for lesson in days
    }  # as a track has it, a day may have fewer tasks than in the manifest
    for lesson in manifest.lessons:
        if lesson.name not in names:
            runs.append([])
        elif runs:
            runs[-1].append(lesson)
        else:
            runs.append([lesson])
    return ", ".join(run[0].name if len(run) == 1 else f"{run[0].name}–{run[-1].name}" for run in runs if run)


@cache
def _defined(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    return frozenset(functions(parse(read_source(path, path.name), path.name)))
