"""The command line of `pdm run new-day`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from authoring.new_day.files import files_of
from authoring.new_day.naming import NewDay, check_module, module_of, read_number, read_title
from authoring.new_day.writing import write_or_undo
from coursekit.interrupts import leaving_when_terminated
from coursekit.manifest import load_manifest
from coursekit.paths import Course


def new_day(
    number: Annotated[
        str,
        typer.Argument(
            metavar="DAY", help="The day after the last of a week, such as 4.8, or of a new week."
        ),
    ],
    title: Annotated[str, typer.Argument(help='What it is called, such as "Beam search".')],
    module: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="The module that learners write; by default named after the title."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which files would be written, and write none.")
    ] = False,
) -> None:
    """Begin a day of your own: a skeleton of two small tasks that passes all gates as it is.

    Lesson, hints, reference, starter, tests, mutants, notebook and chapter are there, and fit one another. Replace
    them piece by piece, and let the gates tell you where they no longer fit. Nothing that exists is overwritten.
    """
    course = Course.find()
    manifest = load_manifest(course)
    week, day = read_number(number.strip(), manifest)
    title = read_title(title)
    new = NewDay(week, day, title, module if module is not None else module_of(title))
    check_module(course, new.module)
    contents = files_of(course, manifest, new)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    if not dry_run:
        with leaving_when_terminated():
            write_or_undo(contents)
    console.print(f"Day {new.name}, {new.title}: {'would be written' if dry_run else 'written'}")
    for path in contents:
        if not path.is_relative_to(course.state):
            console.print(f"  {path.relative_to(course.root).as_posix()}")
    if not dry_run:
        console.print(_next_steps(new))


def _next_steps(new: NewDay) -> str:
    return f"""
It passes as it is:
  pdm run test {new.name} --impl solution
  pdm run check --only agreement,starter,order,mutants,notebooks --day {new.name}

Now make it yours (CONTRIBUTING.md, "How a day is made"):
  1. solutions/tiny_llm/{new.module}.py: your reference; then pdm run starter
  2. lessons/week_{new.week}/day_{new.day}/lesson.toml: goal, tasks, points, hints; the earlier days that it needs
  3. tests/week_{new.week}/test_day_{new.day}.py, with an oracle of its own, and mutants.toml beside the lesson
  4. lessons/week_{new.week}/day_{new.day}/notebook.py: things to try out; then pdm run notebooks {new.name}
  5. book/src/{new.chapter}; a figure, if there is one: book/figures/week_{new.week}_day_{new.day}.py
Read it in the book: pdm run book --open {new.name}"""
