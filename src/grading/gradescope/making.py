"""`pdm run grade --gradescope OUT.zip`: what it refuses, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from rich.console import Console

from coursekit.errors import CourseError
from coursekit.paths import Course
from grading.gradescope.packing import write_autograder
from grading.reports.text import number
from grading.running.asking import Asked

TAKEN = ("folder", "week", "day", "backend", "policy", "seed", "seed_file")
"""What an autograder goes by, and the folder, of which the command knows whether it was given."""


def make_autograder(asked: Asked, out: Path, others: Sequence[str] = ()) -> None:
    """Write the autograder and say what it is.

    Args:
        asked: the arguments of the command.
        out: the zip to write.
        others: arguments that were given and are not in ``asked``.

    Raises:
        CourseError: an argument doesn't belong here or is wrong, or the zip can't be written.
    """
    if unfit := [*others, *_unfit(asked)]:
        raise CourseError(f"--gradescope grades nothing here: leave {' and '.join(unfit)} out")
    packed = write_autograder(Course.find(), asked, out)
    days = f"Day {packed.days[0]}" if len(packed.days) == 1 else f"{len(packed.days)} days"
    console = Console(highlight=False)
    console.print(
        f"{days}, {number(packed.points)} points: {out} ({packed.size:,} bytes)", soft_wrap=True, markup=False
    )
    console.print("It holds your seed: upload it to Gradescope, and show it to nobody else.", markup=False)


def _unfit(asked: Asked) -> list[str]:
    plain = Asked(asked.folder)
    names = (field.name for field in fields(Asked) if field.name not in TAKEN)
    return [f"--{name.replace('_', '-')}" for name in names if getattr(asked, name) != getattr(plain, name)]
