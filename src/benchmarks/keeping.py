"""Where the ladders of a bench go: the terminal, a JSON file, and a picture beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.climbs import draw_climbs
from benchmarks.ladder import Bar, Ladder, outcomes
from benchmarks.machine import machine_line
from benchmarks.picture import draw
from benchmarks.report import document, name_of, print_report, rows_of
from benchmarks.rounds import Record
from coursekit.errors import CourseError
from coursekit.files import require_writable, write_files, write_text
from coursekit.paths import Course


def require_places(target: Path) -> None:
    """Refuse a file that could not be written at the end, or for which the picture would have the same name.

    Raises:
        CourseError: the message says why.
    """
    if target.suffix != ".json":
        raise CourseError(f"--out is {str(target)!r}; it must be a file whose name ends in .json")
    require_writable([target, *_pictures(target)])


def keep(
    console: Console,
    course: Course,
    target: Path,
    record: Record,
    ladders: Sequence[Ladder],
    bars: Sequence[Bar],
    about: dict[str, Any],
) -> None:
    """Print the ladders, then write them as JSON and as a picture; ladders that climb have one of their own.

    Args:
        console: where to print.
        course: its folder is left out of the names that are printed.
        target: the JSON file; the pictures go beside it.
        record: what was measured, at least one case.
        ladders: those that may have been measured.
        bars: what they have to show.
        about: how and where it was measured: at least "machine".
    """
    found = outcomes(bars, record.measured)
    machine = machine_line(about["machine"])
    console.print(machine, "", style="dim", soft_wrap=True)
    print_report(console, ladders, record, found)
    text = json.dumps(document(ladders, record, found, **about), indent=2, ensure_ascii=False)
    made = [ladder for ladder in ladders if rows_of(ladder, record)]
    climbs, others = [each for each in made if each.climbs], [each for each in made if not each.climbs]
    picture, own = _pictures(target)
    pictures = {picture: draw(others, record, machine)} if others else {}
    if climbs:
        pictures[own if others else picture] = draw_climbs(climbs, record, machine)
    write_text(target, f"{text}\n")
    write_files(pictures)
    names = (name_of(path, course) for path in (target, *pictures))
    console.print(f"kept in {' and '.join(names)}", style="dim", soft_wrap=True)


def _pictures(target: Path) -> tuple[Path, Path]:
    """The picture beside a JSON file, and the one for ladders that climb, where there are both kinds."""
    return target.with_suffix(".svg"), target.with_name(f"{target.stem}-climb.svg")
