"""The preprocessor that mdBook calls: `python -m authoring.book.preprocessor [supports RENDERER]`.

mdBook writes `[context, book]` as JSON to standard input and reads the book back from standard output; a
failure is a message on standard error and an exit code other than 0, which ends the build.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from authoring.book.boxes import expand
from coursekit.errors import CourseError
from coursekit.manifest import Manifest, load_manifest
from coursekit.paths import Course


def main(arguments: list[str], source: TextIO, target: TextIO) -> int:
    """Answer one call of mdBook's and return the exit code."""
    if arguments[:1] == ["supports"]:
        return 0
    try:
        context, book = json.load(source)
        course = Course(Path(context["root"]).resolve().parent)
        json.dump(expand_book(book, load_manifest(course)), target)
    except CourseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def expand_book(book: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    """The book as mdBook 0.5 gives it, with the directives of every chapter replaced in place."""
    for chapter in chapters(book["items"]):
        place = chapter["source_path"] or chapter["name"]
        chapter["content"] = expand(chapter["content"], manifest, place)
    return book


def chapters(items: list[Any]) -> Iterator[dict[str, Any]]:
    """Every chapter among `items` and below; separators and part titles are passed over."""
    for item in items:
        if isinstance(item, dict) and "Chapter" in item:
            chapter = item["Chapter"]
            yield chapter
            yield from chapters(chapter["sub_items"])


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:], sys.stdin, sys.stdout))
