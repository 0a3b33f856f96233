"""`pdm run watch`: tests again whenever a file of the learner's is saved, and shows only what changed."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from watchfiles import PythonFilter, watch

from coursekit.backends import Backend, Device
from coursekit.errors import CourseError
from coursekit.manifest import Manifest, load_manifest
from coursekit.paths import PACKAGES, Course
from coursekit.running.changes import show_changes
from coursekit.running.import_path import Impl
from coursekit.running.options import BackendOption, DeviceOption, KeywordOption, WordsArgument
from coursekit.running.results import Report
from coursekit.running.round import Round
from coursekit.running.selection import Asked, read_arguments

FIRST_ANSWER_MS = 300


def watch_tests(
    words: WordsArgument = None,
    keyword: KeywordOption = None,
    backend: BackendOption = Backend.TORCH,
    device: DeviceOption = Device.CPU,
) -> None:
    """Test your code now and after every save, until Ctrl-C; after the first time, only what changed is shown.

    Without a day, every day begun is tested, and the one after.
    """
    course = Course.find()
    manifest = load_manifest(course, backend.package)
    asked = read_arguments(course, manifest, words or [], keyword=keyword)
    watcher = Watcher(course, manifest, asked, backend, device, Console(highlight=False))
    with contextlib.suppress(KeyboardInterrupt):
        watcher.run()
    typer.echo("\nno longer watching")


@dataclass
class Watcher:
    """Runs the same tests again and again; `before` is what the last whole run found."""

    course: Course
    manifest: Manifest
    asked: Asked
    backend: Backend
    device: Device
    console: Console
    before: Report | None = None

    def run(self) -> None:
        """Test now and after every save, until Ctrl-C."""
        folders = [path for package in PACKAGES if (path := self.course.starter(package)).is_dir()]
        # The first, empty answer comes when the watching has begun: what is saved while tests run is not missed.
        answers = watch(
            *folders, watch_filter=PythonFilter(), rust_timeout=FIRST_ANSWER_MS, yield_on_timeout=True
        )
        for saved in answers:
            if self.before is None or saved:
                self._test(sorted(Path(path) for _, path in saved))

    def _test(self, saved: list[Path]) -> None:
        for path in saved:
            self.console.print(f"\n[dim]saved: {path.relative_to(self.course.root).as_posix()}[/dim]")
        one = Round(self.course, self.manifest, self.asked, Impl.LEARNER, self.backend, self.device)
        try:
            _, report = one.run()
        except CourseError as error:
            if self.before is None:
                raise
            self.console.print(f"[red]error:[/red] {escape(str(error))}", soft_wrap=True)
            return
        except typer.Exit as left:
            raise KeyboardInterrupt from left
        board = one.board(report, self.console, one.keep(report))
        if self.before is None or report.errors or report.interrupted:
            board.show()
        else:
            show_changes(board, self.before)
        if report.interrupted:
            raise KeyboardInterrupt
        self.before = report
        self.console.print("\n[dim]waiting for the next save (Ctrl-C ends)[/dim]")
