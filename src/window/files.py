"""The files of the page."""

from __future__ import annotations

from pathlib import Path

from fastapi import HTTPException
from fastapi.responses import FileResponse

from window.guarding import HEADERS

FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def names() -> set[str]:
    """The files that there are."""
    return {path.name for path in FOLDER.iterdir() if path.is_file() and path.suffix in TYPES}


def file(name: str) -> FileResponse:
    """One of the files, with its type.

    Raises:
        HTTPException: there is none of that name.
    """
    if name not in names():  # so no name leads out of the folder
        raise HTTPException(404, "the window has no such file")
    path = FOLDER / name
    return FileResponse(path, headers={**HEADERS, "Content-Type": TYPES[path.suffix]})
