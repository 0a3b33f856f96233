"""Prints what the grader will see: task by task, then what is in the way."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from coursekit.manifest import Manifest
from coursekit.running.board import LOOKS, STATE_WIDTH
from coursekit.running.screen import Screen
from coursekit.tracks import name_days
from grading.handing_in.outlook import Outlook
from grading.handing_in.work import Work

UNKNOWN = ("?", "?", "yellow")
NAMES_SHOWN = 5


def show_tasks(
    screen: Screen, manifest: Manifest, work: Work, outlooks: Sequence[Outlook], source: str
) -> None:
    """Print a line for each task of the days that are begun, the points, and which days are not begun.

    Args:
        screen: where to.
        manifest: the days.
        work: whose package.
        outlooks: the tasks, in order.
        source: from where they are known.
    """
    screen.print()
    screen.print(f"What the grader will see in src/{work.package} ({source}):", style="bold")
    begun = work.begun
    for lesson in begun:
        screen.print()
        screen.print(f"Week {lesson.week} Day {lesson.day}  {lesson.title}")
        for outlook in outlooks:
            if outlook.task in lesson.tasks:
                screen.print(_line(screen, outlook))
    screen.print()
    got, of = sum(one.earned for one in outlooks), sum(one.points for one in outlooks)
    days = "day" if len(begun) == 1 else "days"
    screen.print(f"{got} of {of} points in {len(begun)} {days}")
    if rest := tuple(lesson for lesson in work.track if lesson not in begun):
        screen.block(f"Nothing written: {name_days(rest, manifest)}", indent=0, style="dim")


def show_obstacles(screen: Screen, work: Work) -> None:
    """Print what the learner may not expect: files that are damaged, gone, or don't count."""
    for message in work.damaged.values():
        screen.print()
        screen.block(message, indent=0, style="red")
    lists = (
        (work.missing, "missing, so the grader takes the stubs: "),
        (
            work.changed,
            "given files that you changed or removed don't count, and the grader takes the course's: ",
        ),
        (work.strangers, "not files of the course, so not handed in; code that imports them will fail: "),
    )
    for files, what in lists:
        if files:
            screen.print()
            screen.block(f"src/{work.package}: {what}{_listed(files)}", indent=0, style="yellow")


def _line(screen: Screen, outlook: Outlook) -> Text:
    symbol, plain, color = LOOKS[outlook.state] if outlook.state else UNKNOWN
    state = str(outlook.state) if outlook.state else "unknown"
    line = Text("  ")
    line.append(f"{symbol if screen.unicode else plain} {state:<{STATE_WIDTH}}", style=color)
    share = f"{outlook.earned}/{outlook.points}" if outlook.points else f"–/{outlook.task.points}"
    line.append(screen.plain(f"  {share:>5}  {outlook.task.name}  "))
    line.append(screen.plain(outlook.task.title))
    if outlook.note:
        line.append(screen.plain(f"  ({outlook.note})"), style="dim")
    return line


def _listed(files: Sequence[str]) -> str:
    more = len(files) - NAMES_SHOWN
    return ", ".join(files[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
