"""`pdm run progress`: the whole course on one screen."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coursekit.backends import Backend
from coursekit.learner.standing import DayStanding, Standing, Survey
from coursekit.learner.state import State
from coursekit.manifest import load_manifest
from coursekit.paths import Course

# Symbol, its stand-in for terminals that know only ASCII, and its style.
SYMBOLS = {
    Standing.PASSED: ("✓", "x", "green"),
    Standing.BEGUN: ("◐", "o", "yellow"),
    Standing.NOT_STARTED: ("·", ".", "dim"),
    Standing.BORROWED: ("↩", "b", "cyan"),
    Standing.SKIPPED: ("–", "-", "dim"),
}
BLOCK_WIDTH = 58
GAP = 4


def progress(
    backend: Annotated[
        Backend | None, typer.Option(help="Whose package; by default the one that you tested last.")
    ] = None,
) -> None:
    """Show every day and task of the course, the points that you have earned, and what to type next."""
    course = Course.find()
    state = State.load(course)
    package = backend.package if backend else state.latest_package()
    show(Survey(course, load_manifest(course), state, package), Console(highlight=False))


def show(survey: Survey, console: Console) -> None:
    ascii_only = console.options.ascii_only
    width = min(console.width, BLOCK_WIDTH)
    days = [day for day in survey.days if day.tasks]
    console.print(_total(survey, width, ascii_only))
    weeks = [(week, list(group)) for week, group in groupby(days, key=lambda day: day.lesson.week)]
    _print_beside([_week(week, group, width, ascii_only) for week, group in weeks], console)
    console.print()
    console.print(_legend(days, ascii_only))
    for problem in survey.problems:
        console.print()
        console.print(Text.assemble(("Can't be read: ", "red"), problem), soft_wrap=True)
    console.print()
    console.print(_next(survey), soft_wrap=True)


def _total(survey: Survey, width: int, ascii_only: bool) -> Text:
    full, empty = ("#", ".") if ascii_only else ("█", "░")
    share = survey.earned / survey.points if survey.points else 0.0
    figures = f"  {survey.earned} of {survey.points} points"
    bar_width = max(width - len(figures), 10)
    filled = int(share * bar_width)
    return Text.assemble((full * filled, "green"), (empty * (bar_width - filled), "dim"), figures)


def _week(week: int, days: list[DayStanding], width: int, ascii_only: bool) -> Table:
    earned, points = sum(day.earned for day in days), sum(day.points for day in days)
    table = Table(box=None, show_header=False, pad_edge=False, width=width, padding=(0, 2, 0, 0))
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(Text(f"Week {week}", "bold"), "", Text(f"{earned} / {points}", "bold"))
    for day in days:
        symbols = Text(" ").join(_symbol(standing, ascii_only) for standing in day.tasks.values())
        table.add_row(Text(f"{day.lesson.name}  {day.lesson.title}"), symbols, f"{day.earned} / {day.points}")
    return table


def _symbol(standing: Standing, ascii_only: bool) -> Text:
    symbol, plain, style = SYMBOLS[standing]
    return Text(plain if ascii_only else symbol, style)


def _print_beside(blocks: list[Table], console: Console) -> None:
    """Print the blocks with a blank line above each, as many side by side as the terminal has room for."""
    columns = max(1, (console.width + GAP) // (BLOCK_WIDTH + GAP))
    for start in range(0, len(blocks), columns):
        row = Table.grid(padding=(0, GAP, 0, 0))
        row.add_row(*blocks[start : start + columns])
        console.print()
        console.print(row)


def _legend(days: Iterable[DayStanding], ascii_only: bool) -> Text:
    there = {standing for day in days for standing in day.tasks.values()}
    usual = (Standing.PASSED, Standing.BEGUN, Standing.NOT_STARTED)
    shown = [standing for standing in SYMBOLS if standing in there or standing in usual]
    parts = [Text.assemble(_symbol(standing, ascii_only), f" {standing}") for standing in shown]
    legend = Text("   ").join(parts)
    if Standing.BORROWED in there:
        legend.append(
            "\nWhat is borrowed earns no points; pdm run reset DAY --borrowed puts its stubs back for you to write."
        )
    return legend


def _next(survey: Survey) -> Text:
    found = survey.next_task()
    option = next(backend.option for backend in Backend if backend.package == survey.package)
    if found is None:
        return _closing(survey, option)
    lesson, task = found
    return Text(
        f"Next:   {task.label}, {task.title}\n"
        f"Read:   {lesson.read_command} (book/src/{lesson.chapter})\n"
        f"Test:   {lesson.test_command}{option}\n"
        f"Stuck?  pdm run hint {task.name}"
    )


def _closing(survey: Survey, option: str) -> Text:
    """What to say where no task is left to write: all is done, or the rest is borrowed."""
    lent = [
        (day.lesson, task)
        for day in survey.days
        for task, standing in day.tasks.items()
        if standing is Standing.BORROWED
    ]
    if not lent:
        return Text("Every task is done. See your engine run: pdm run smoke")
    points, (lesson, task) = sum(task.points for _, task in lent), lent[0]
    return Text(
        f"Every task is done or borrowed; code worth {points} points is borrowed, the first of it in {task.label}.\n"
        f"Next:   pdm run reset {lesson.name} --borrowed{option}, then write it yourself\n"
        f"Read:   {lesson.read_command} (book/src/{lesson.chapter})"
    )
