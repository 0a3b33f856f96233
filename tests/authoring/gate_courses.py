"""The tiny course with two mutants a task, for the tests of the gates, and ways to run a gate on it."""

from __future__ import annotations

import io
from pathlib import Path

from courses import make_course, write
from rich.console import Console

from authoring.gates.gate import Context, Findings, Gate
from coursekit.paths import Course

MUTANTS = {
    "week_1/day_1": [
        ("task_1", "adds", "shapes.py", "return size.width * size.height", "return size.width + size.height"),
        (
            "task_1",
            "squares",
            "shapes.py",
            "return size.width * size.height",
            "return size.width * size.width",
        ),
        ("task_2", "half the way", "shapes.py", "return 2 * (size", "return (size"),
        ("task_2", "no size", "shapes.py", "2 * (size.width + size.height)", "2 * size.length"),
    ],
    "week_1/day_2": [
        ("task_1", "a whole turn", "shapes.py", "return TURN / 2 *", "return TURN *"),
        ("task_1", "x and y swapped", "shapes.py", "return x, y", "return y, x"),
    ],
    "week_2/day_1": [
        ("task_1", "counts from 0", "counting.py", "number = 1\n", "number = 0\n"),
        ("task_1", "forgets the last", "counting.py", "number <= last", "number < last"),
        ("task_2", "counts, does not add", "counting.py", "sum(count_up(last))", "len(list(count_up(last)))"),
        ("task_2", "one too few", "counting.py", "sum(count_up(last))", "sum(count_up(last - 1))"),
    ],
}


# What the mutants' messages hold, by day and task.
SAYS = {
    "week_1/day_1": {"task_1": "assert", "task_2": "perimeter"},
    "week_1/day_2": {"task_1": "assert"},
    "week_2/day_1": {"task_1": "assert", "task_2": "assert"},
}


def make_gated_course(folder: Path) -> Course:
    """The tiny course with mutants that its tests find."""
    course = make_course(folder)
    for day, entries in MUTANTS.items():
        write_mutants(course, day, entries)
    return course


def write_mutants(course: Course, day: str, entries: list[tuple[str, str, str, str, str]]) -> None:
    keys = ("task", "why", "file", "find", "replace")
    tables = (
        "\n".join(
            [
                "[[mutant]]",
                *(f"{key} = {_quoted(text)}" for key, text in zip(keys, entry, strict=True)),
                *([f"says = {_quoted(SAYS[day][entry[0]])}"] if entry in MUTANTS[day] else []),
            ]
        )
        for entry in entries
    )
    write(course.lessons / day / "mutants.toml", "\n\n".join(tables) + "\n")


def plant(course: Course, day: str, *entry: str, says: str | None = None) -> None:
    """Add one more mutant: task, why, file, find, replace; and the words that its message must hold."""
    task, why, file, find, replace = entry
    write_mutants(course, day, [*MUTANTS[day], (task, why, file, find, replace)])
    if says is not None:
        path = course.lessons / day / "mutants.toml"
        write(path, path.read_text(encoding="utf-8") + f"says = {_quoted(says)}\n")


def add_test(course: Course, name: str, text: str) -> None:
    path = course.tests / name
    write(path, path.read_text(encoding="utf-8") + "\n\n" + text)


def run(
    gate: Gate, course: Course, day: str | None = None, workers: int = 2, messages: bool = False
) -> Findings:
    """What the gate finds in the course."""
    return gate(Context(course, Console(file=io.StringIO()), workers, day, messages))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
