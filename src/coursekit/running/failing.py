"""What the board shows of the tests that failed: the first in full, the others of its day by their titles, or all."""

from __future__ import annotations

from collections import Counter

from coursekit.manifest import Lesson, Task
from coursekit.running.results import Report, Result, TaskResult
from coursekit.running.screen import Screen
from coursekit.task_state import TaskState

FAILED = (TaskState.CRASHED, TaskState.WRONG)
TITLES_SHOWN = 5
LINES_OF_EACH = 6  # of a message, where all are shown


def first_failing(report: Report) -> TaskResult | None:
    """The first task of which a test is wrong or crashed."""
    return next((task for task in report.tasks.values() if task.state in FAILED), None)


def show_first(screen: Screen, lesson: Lesson, task: Task, report: Report) -> None:
    """Print the first failure of ``task``, then the titles of what else fails on its day."""
    result = report.tasks[task.name]
    first = result.first_failure
    assert first is not None
    screen.print()
    screen.print(f"{task.name} {task.title}: {result.state}", style="bold red")
    screen.block(f"{first.sentence}  ({first.where})", indent=2)
    screen.print()
    screen.block(first.message, indent=4)
    _show_printed(screen, first)
    others = [test for test in _failing(lesson, report) if test is not first]
    if not others:
        return
    screen.print()
    screen.print("Also failing:", style="bold")
    # The cases of one test have one title, and its parameters in brackets.
    titles = Counter((test.task, test.sentence.partition(" [")[0]) for test in others)
    for (name, title), cases in list(titles.items())[:TITLES_SHOWN]:
        screen.line(f"  {name}  {title}" + (f"  ({cases} cases)" if cases > 1 else ""))
    if left := sum(list(titles.values())[TITLES_SHOWN:]):
        alone = len(report.tasks) == 1
        command = screen.command(f"{(task if alone else lesson).test_command} --all")
        screen.print(f"  and {left} more: {command}")


def show_all(screen: Screen, tasks: list[Task], report: Report) -> None:
    """Print every failing test of these tasks with its title and the first lines of its message."""
    for task in tasks:
        result = report.tasks[task.name]
        failed = [test for test in result.tests if test.state in FAILED]
        if not failed:
            continue
        screen.print()
        screen.print(f"{task.name} {task.title}: {result.state}", style="bold red")
        for test in failed:
            screen.block(f"{test.sentence}  ({test.where})", indent=2)
            lines = test.message.splitlines()
            screen.block("\n".join(lines[:LINES_OF_EACH]), indent=6)
            if len(lines) > LINES_OF_EACH:
                screen.print(f"      … {len(lines) - LINES_OF_EACH} more lines")


def _failing(lesson: Lesson, report: Report) -> list[Result]:
    there = [report.tasks[task.name] for task in lesson.tasks if task.name in report.tasks]
    return [test for task in there for test in task.tests if test.state in FAILED]


def _show_printed(screen: Screen, test: Result) -> None:
    if not test.printed:
        return
    screen.print()
    screen.print("    it printed:", style="dim")
    for line in test.printed.splitlines():
        screen.line(f"      {line}")
