"""`pdm run notebooks`: make the notebooks from their texts, or check that text, notebook and outputs agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console

from authoring.notebooks.comparing import (
    LARGEST,
    LARGEST_OF_ALL,
    cells_differ,
    output_problems,
    printed_errors,
)
from authoring.notebooks.executing import execute_all
from authoring.notebooks.making import as_bytes, make_notebook, text_of
from authoring.progress import Meter, count
from coursekit.errors import CourseError
from coursekit.files import write_files
from coursekit.interrupts import leaving_when_terminated
from coursekit.machine import cores
from coursekit.manifest import Lesson, load_manifest
from coursekit.paths import Course
from notebooks.copies import notebook_of

FAILED = 1


def notebooks(
    days: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DAY]…", help="Such as 1.3 2.6; left out, all that there are."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Change nothing; exit with 1 where text, notebook or outputs disagree."),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="How many at the same time: 1 when they are made, which measures best.",
        ),
    ] = None,
) -> None:
    """Make each day's notebook from its text, `notebook.py`, and run it on the reference; or check them.

    With --check the measurements in them are cut short, and what they gave is not compared.
    """
    course = Course.find()
    manifest = load_manifest(course)
    lessons = [manifest.lesson(day) for day in dict.fromkeys(days or ())] or list(manifest.lessons)
    console = Console(highlight=False)
    with leaving_when_terminated():
        if check:
            problems = check_notebooks(course, lessons, console, jobs or cores())
        else:
            problems = make_notebooks(course, lessons, console, jobs or 1)
    for problem in problems:
        console.print(f"problem: {problem}", markup=False, soft_wrap=True)
    if problems:
        raise typer.Exit(FAILED)
    console.print(f"{count(len(lessons), 'notebook')} {'in order' if check else 'made'}")


def make_notebooks(course: Course, lessons: Sequence[Lesson], console: Console, at_once: int) -> list[str]:
    """Run them and write those that ran; what is wrong with the others."""
    books = {lesson.name: make_notebook(lesson) for lesson in lessons}
    with Meter(console, "notebooks", len(books)) as meter:
        done = execute_all(course, books, False, at_once, meter.advance)
    problems = []
    for lesson in lessons:
        book = done[lesson.name]
        found = [str(book)] if isinstance(book, CourseError) else list(_flaws(book))
        problems += [f"Day {lesson.name}: {problem}" for problem in found]
        if not found:
            write_files({notebook_of(lesson): as_bytes(book)})
    return problems


def check_notebooks(course: Course, lessons: Sequence[Lesson], console: Console, at_once: int) -> list[str]:
    """What is wrong with the committed notebooks."""
    problems, books, committed = [], {}, {}
    for lesson in lessons:
        try:
            books[lesson.name], committed[lesson.name] = make_notebook(lesson), _read(course, lesson)
        except CourseError as error:
            problems.append(f"Day {lesson.name}: {error}")
            continue
        if cells_differ(books[lesson.name], committed[lesson.name]):
            problems.append(f"Day {lesson.name}: the notebook isn't its text's; {_again(lesson)}")
            del books[lesson.name]
    problems += _sizes(lessons)
    with Meter(console, "notebooks", len(books)) as meter:
        done = execute_all(course, books, True, at_once, meter.advance)
    for name, book in done.items():
        found = [str(book)] if isinstance(book, CourseError) else output_problems(book, committed[name])
        problems += [f"Day {name}: {problem}" for problem in found]
    return problems


def _flaws(book: Any) -> list[str]:
    size = len(as_bytes(book))
    too_large = [f"it has {size:,} bytes with its outputs, more than {LARGEST:,}"] if size > LARGEST else []
    return [*too_large, *printed_errors(book)]


def _sizes(lessons: Sequence[Lesson]) -> list[str]:
    sizes = {lesson.name: _size(lesson) for lesson in lessons}
    problems = [
        f"Day {name}: the notebook has {size:,} bytes, more than {LARGEST:,}"
        for name, size in sizes.items()
        if size > LARGEST
    ]
    if sum(sizes.values()) > LARGEST_OF_ALL:
        problems.append(f"all notebooks have {sum(sizes.values()):,} bytes, more than {LARGEST_OF_ALL:,}")
    return problems


def _size(lesson: Lesson) -> int:
    path = notebook_of(lesson)
    return path.stat().st_size if path.is_file() else 0


def _read(course: Course, lesson: Lesson) -> Any:
    import nbformat

    path = notebook_of(lesson)
    name = path.relative_to(course.root).as_posix()
    try:
        return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except FileNotFoundError:
        raise CourseError(f"{name} is not there; {_again(lesson)}") from None
    except (OSError, ValueError, AttributeError, TypeError, nbformat.ValidationError) as error:
        raise CourseError(f"{name} can't be read: {_first_line(error)}; {_again(lesson)}") from error


def _again(lesson: Lesson) -> str:
    return f"`pdm run notebooks {lesson.name}` makes it from {text_of(lesson).name}"


def _first_line(error: Exception) -> str:
    """What a JSON schema says goes on for pages."""
    return str(error).split("\n", 1)[0]
