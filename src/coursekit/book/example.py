"""`pdm run example 3.6`: runs the Python blocks of a day's chapter, with the learner's code or the reference's."""

from __future__ import annotations

import contextlib
import io
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from coursekit.backends import Device
from coursekit.book.blocks import Block, blocks_of, needed_for
from coursekit.book.markdown import Page
from coursekit.errors import CourseError
from coursekit.manifest import Lesson, load_manifest
from coursekit.paths import PACKAGES, Course
from coursekit.running.failures import describe
from coursekit.running.import_path import Impl, choose_implementation, choose_triton
from coursekit.running.places import Places
from coursekit.running.screen import Screen

FAILED = 1
HEAD = 3  # lines of a block's code


def example(
    day: Annotated[str, typer.Argument(help="The day, for example 3.6.", metavar="DAY")],
    number: Annotated[
        int | None,
        typer.Argument(
            min=1, metavar="[BLOCK]", help="Only this block, after those before it that it builds on."
        ),
    ] = None,
    impl: Annotated[Impl, typer.Option(help="Whose code: yours, or the reference.")] = Impl.LEARNER,
) -> None:
    """Run the Python blocks of a day's chapter in order, and show what each prints.

    The blocks import tiny_llm: your code, so that you can compare what they print with what the chapter shows.
    """
    course = Course.find()
    lesson = load_manifest(course).lesson(day)
    path, blocks = read_blocks(course, lesson)
    if number is not None and number > len(blocks):
        raise CourseError(f"the chapter of Day {lesson.name} has {len(blocks)} blocks of Python")
    choose_implementation(course, impl)
    choose_triton(Device.CPU)
    folder = course.solution if impl is Impl.SOLUTION else course.starter
    places = Places(course.root, tuple(folder(package) for package in PACKAGES))
    runner = BlockRunner(lesson.name, path, places, Screen(Console(highlight=False)))
    chosen = blocks if number is None else needed_for(number, blocks)
    for block in chosen:
        if not runner.run(block, shown=number in (None, block.number)):
            raise typer.Exit(FAILED)


def read_blocks(course: Course, lesson: Lesson) -> tuple[Path, list[Block]]:
    """The chapter's file and its Python blocks.

    Raises:
        CourseError: the file is not there, or has no such block.
    """
    path = course.book / "src" / lesson.chapter
    if not path.is_file():
        raise CourseError(f"the chapter of Day {lesson.name} is not there: book/src/{lesson.chapter}")
    blocks = blocks_of(Page.read(path, path.name))
    if not blocks:
        raise CourseError(f"the chapter of Day {lesson.name} has no blocks of Python")
    return path, blocks


@dataclass(frozen=True)
class BlockRunner:
    """Runs blocks of the chapter of a day, in one namespace; `path` is the chapter's file."""

    day: str
    path: Path
    places: Places
    screen: Screen
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def run(self, block: Block, shown: bool) -> bool:
        """Run a block; print its head and its output if it is `shown`, and why it fails. Whether it went well."""
        if shown:
            self._show_head(block)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(block.compile(str(self.path)), self.namespace)
        except KeyboardInterrupt:
            self._show_printed(printed)
            raise
        except BaseException as error:
            self._show_printed(printed)
            self._show_failure(block, error)
            return False
        if shown:
            self._show_printed(printed)
            self._compare(block, printed.getvalue())
        return True

    def _show_head(self, block: Block) -> None:
        lines = [line for line in block.code.splitlines() if line.strip()]
        self.screen.print(f"Block {block.number}  ({self.places.shown(str(self.path))}:{block.line})", "bold")
        for line in [*lines[:HEAD], *(["…"] if len(lines) > HEAD else [])]:
            self.screen.line(f"  {line}", "dim")

    def _show_printed(self, printed: io.StringIO) -> None:
        if printed.getvalue():
            self.screen.print(printed.getvalue().rstrip("\n"))
        self.screen.print()

    def _compare(self, block: Block, printed: str) -> None:
        if not block.prints_what_is_shown(printed):
            self.screen.print("The book shows something else:", "yellow")
            self.screen.print((block.shown or "").rstrip())
            self.screen.print()

    def _show_failure(self, block: Block, error: BaseException) -> None:
        self.screen.print(f"Block {block.number} fails{self._line(error)}", "bold red")
        failure = describe(error, self.places)
        if failure.stub is not None:
            task = failure.stub
            self.screen.block(f"Task {task.task} is not written yet: {task.title}", indent=2)
            self.screen.commands(
                (f"test {task.task}", "to test it"),
                (f"hint {task.task}", "for a hint"),
                (
                    f"example {self.day} {block.number} --impl solution",
                    "to see the block run on the reference",
                ),
            )
            return
        self.screen.block(failure.message, indent=2)

    def _line(self, error: BaseException) -> str:
        """The line of the chapter that was reached."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == str(self.path)]
        if not own:
            return ""
        return f" at {self.places.shown(own[-1].filename)}:{own[-1].lineno}: {own[-1].line}"
