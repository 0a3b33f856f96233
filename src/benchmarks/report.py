"""What a bench found: as tables, and as the JSON that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from benchmarks.ladder import Ladder, Outcome
from benchmarks.rounds import Record, Samples
from coursekit.paths import Course

MOST_WIDTH = 1000
"""Of a table, in characters."""


def name_of(path: Path, course: Course) -> str:
    """A file that was written, as the course's user knows it."""
    return str(path.relative_to(course.root) if path.is_relative_to(course.root) else path)


def rows_of(ladder: Ladder, record: Record) -> list[Samples]:
    """The cases of a ladder that were measured."""
    return [each for each in record.measured if each.case.ladder == ladder.name]


def table(ladder: Ladder, rows: Sequence[Samples]) -> Table:
    """A row a case: medians, the first quantity as a ratio to that of the first row, and its spread.

    Where a ladder climbs, the ratio to the row before is there, too.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.title, made.title_style, made.title_justify = ladder.title, "bold", "left"
    made.add_column("", min_width=25)
    main, *others = ladder.quantities
    ratios = ("× before", "× first") if ladder.climbs else ("× first",)
    for heading in (main.heading, *ratios, "spread", *(quantity.heading for quantity in others)):
        made.add_column(heading, justify="right")
    first = before = rows[0].median(main.name)
    for row in rows:
        value = row.median(main.name)
        compared = [f"{value / other if other else 0.0:.2f}" for other in (before, first)[-len(ratios) :]]
        rest = (quantity.show(row.median(quantity.name)) for quantity in others)
        made.add_row(row.case.label, main.show(value), *compared, f"{row.spread(main.name):.0%}", *rest)
        before = value
    return made


def print_report(
    console: Console, ladders: Sequence[Ladder], record: Record, found: Sequence[Outcome]
) -> None:
    """All ladders, then what they have to show."""
    for ladder in ladders:
        if rows := rows_of(ladder, record):
            print_whole(console, table(ladder, rows))
    for each in found:
        mark = "[green]✓[/green]" if each.met else "[red]✗[/red]"
        console.print(f"{mark} {each.bar.text}: {each.ratio:.2f} ×")
    for label, message in record.missing.items():
        console.print(f"left out: {label}: not written yet ({message})", style="yellow", markup=False)


def print_whole(console: Console, made: Table) -> None:
    """Print a table with all of its columns, even if they need more room than there is: a file has no width."""
    width = console.width
    needed = Measurement.get(console, console.options.update(max_width=MOST_WIDTH), made).maximum
    console.width = max(needed, width)
    try:
        console.print(made, "")
    finally:
        console.width = width


def document(
    ladders: Sequence[Ladder], record: Record, found: Sequence[Outcome], **about: Any
) -> dict[str, Any]:
    """All that was measured, run by run, ready for JSON; `about` says how and where."""
    return {
        **about,
        "ladders": [
            {
                "name": ladder.name,
                "title": ladder.title,
                "rows": [_row(each) for each in rows_of(ladder, record)],
            }
            for ladder in ladders
        ],
        "bars": [
            {
                "text": each.bar.text,
                "at_least": each.bar.at_least,
                "ratio": round(each.ratio, 3),
                "met": each.met,
            }
            for each in found
        ],
        "missing": record.missing,
    }


def _row(samples: Samples) -> dict[str, Any]:
    names = samples.runs[0]
    return {
        "name": samples.case.name,
        "label": samples.case.label,
        "median": {name: round(samples.median(name), 6) for name in names},
        "spread": {name: round(samples.spread(name), 4) for name in names},
        "runs": [{name: round(value, 6) for name, value in run.items()} for run in samples.runs],
    }
