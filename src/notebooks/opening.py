"""`pdm run lab 1.3`: a day's notebook in JupyterLab."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Annotated

import typer
from rich.console import Console

from coursekit.backends import Backend
from coursekit.errors import CourseError
from coursekit.interrupts import leaving_when_terminated
from coursekit.learner.standing import begun_and_next
from coursekit.manifest import Lesson, Manifest, load_manifest
from coursekit.paths import ROOT_VARIABLE, Course
from coursekit.running.import_path import Impl
from notebooks import settings
from notebooks.copies import prepare


def lab(
    day: Annotated[
        str | None, typer.Argument(metavar="DAY", help="Such as 1.3; left out, the day that you are on.")
    ] = None,
    impl: Annotated[
        Impl, typer.Option(help="Whose package runs first; %impl in a notebook changes it.")
    ] = Impl.LEARNER,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew; what you have is kept under another name.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or only print the address.")
    ] = True,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="JupyterLab's port; left out, a free one from 8888.")
    ] = None,
) -> None:
    """Open a day's notebook in JupyterLab, on a copy of your own in the folder `play`.

    Ctrl-C, twice or with a yes, ends JupyterLab.
    """
    course = Course.find()
    lesson = choose_day(course, load_manifest(course), day)
    if importlib.util.find_spec("jupyterlab") is None:
        raise CourseError("JupyterLab is not installed: `pdm install` brings it")
    copy, said = prepare(course, lesson, fresh)
    console = Console(highlight=False)
    name = copy.relative_to(course.root).as_posix()
    console.print(f"Day {lesson.name}, {lesson.title}: {name} ({said})", markup=False, soft_wrap=True)
    command = [sys.executable, "-m", "jupyterlab", "--log-level=WARN"]
    command += [f"--ServerApp.root_dir={copy.parent}", f"--LabApp.default_url=/lab/tree/{copy.name}"]
    command += (
        ["--allow-root"] if is_root() else []
    )  # as in many containers; it listens on this machine alone
    command += [] if browser else ["--no-browser"]
    command += [] if port is None else [f"--port={port}", "--ServerApp.port_retries=0"]
    environment = {**os.environ, settings.IMPL: impl.value, ROOT_VARIABLE: str(course.root)}
    raise typer.Exit(run_to_end(command, environment))


def choose_day(course: Course, manifest: Manifest, name: str | None) -> Lesson:
    """The day of that name; where none is given, the one that the learner is on.

    Raises:
        CourseError: there is no such day.
    """
    if name is not None:
        return manifest.lesson(name)
    return begun_and_next(course, Backend.TORCH.package, manifest)[-1]


def is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def run_to_end(command: list[str], environment: dict[str, str]) -> int:
    """Run a program that asks at the keyboard whether Ctrl-C is meant; it never outlives us.

    Returns:
        its exit code; as shells give it, 128 and the signal's number, where a signal has ended it.
    """
    with leaving_when_terminated(), subprocess.Popen(command, env=environment) as process:
        try:
            while True:
                try:
                    code = process.wait()
                    return code if code >= 0 else 128 - code
                except KeyboardInterrupt:
                    continue  # the program has had it too, and asks
        finally:
            if process.poll() is None:
                process.terminate()
