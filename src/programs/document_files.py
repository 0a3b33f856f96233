"""The documents of `pdm run ask-documents`: text files, and folders of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from coursekit.errors import CourseError

SUFFIXES = (".txt", ".md", ".markdown")
"""What text files in a folder are recognized by. A file that is named itself may have any name."""

MOST_BYTES = 10_000_000
"""Of one file: far more than any of the models has positions for."""


@dataclass(frozen=True)
class Document:
    """One file."""

    name: str
    text: str


def read_documents(paths: Iterable[Path]) -> list[Document]:
    """The text of some files, in the order in which they are given; a folder stands for the text files in it.

    Files of a folder are in the natural order of their names: "note 2" before "note 10". Those in its own folders,
    and hidden ones, are left out.

    Raises:
        CourseError: a file is not there, can't be read, is empty, is too large or is not text in UTF-8, or a folder
            has no text files.
    """
    return [Document(str(path), _read(path)) for path in _files(paths)]


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        try:
            if not path.is_dir():
                yield path
                continue
            files = [each for each in path.iterdir() if _is_text_file(each)]
        except OSError as error:
            raise CourseError(f"can't read {path}: {error.strerror}") from None
        if not files:
            raise CourseError(f"the folder {path} has no text files ({', '.join(SUFFIXES)})")
        yield from sorted(files, key=lambda each: natural(each.name))


def _is_text_file(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key to sort names by: numbers in them count as numbers, and case counts last."""
    pieces = re.split(r"([0-9]+)", name.casefold())
    return [(int(piece), "") if i % 2 else (0, piece) for i, piece in enumerate(pieces)], name


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise CourseError(f"there is no file or folder {path}") from None
    except OSError as error:
        raise CourseError(f"can't read {path}: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise CourseError(f"{path} is larger than {MOST_BYTES // 10**6} MB: no model here has room for it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CourseError(
            f"{path} is not text in UTF-8: byte {error.start + 1} has no meaning there"
        ) from None
    if "\0" in text:
        raise CourseError(f"{path} is not text: it has bytes that are 0")
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise CourseError(f"{path} is empty")
    return text
