"""A day's notebook from its text, `notebook.py` in Jupytext's percent format."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from coursekit.errors import CourseError
from coursekit.manifest import Lesson
from notebooks.copies import SOURCE

MEASURED = "measured"
"""The tag of a cell whose output is another one on each machine."""
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
LANGUAGE = {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"}


def text_of(lesson: Lesson) -> Path:
    """The text that a day's notebook is made from."""
    return lesson.path.with_name("notebook.py")


def make_notebook(lesson: Lesson) -> Any:
    """The notebook of a day, not run yet: the same text gives the same notebook.

    Raises:
        CourseError: the text can't be read.
    """
    path = text_of(lesson)
    try:
        return notebook_from(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError) as error:
        raise CourseError(f"{path} can't be read as a notebook: {error}") from error


def notebook_from(text: str) -> Any:
    """The notebook of a text, not run yet."""
    import jupytext
    import nbformat

    book = jupytext.reads(text, fmt="py:percent")
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number}"
    digest = sha256(text.encode()).hexdigest()[:16]
    book["metadata"] = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": LANGUAGE, "tiny_llm": {SOURCE: digest}}
    )
    book["nbformat"], book["nbformat_minor"] = 4, 5
    return book


def as_bytes(book: Any) -> bytes:
    """The notebook as its file holds it."""
    import nbformat

    return (nbformat.writes(book, indent=1) + "\n").encode()
