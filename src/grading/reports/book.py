"""What to read again: the chapter of a day, and the section of a task in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from coursekit.errors import CourseError
from grading.marks import DayMark, TaskMark
from grading.reports.text import line


@dataclass(frozen=True)
class Reading:
    """``link`` is empty where the book isn't published; ``command`` opens the chapter in the learner's own course."""

    chapter: str
    section: str
    link: str
    command: str


@dataclass(frozen=True)
class Book:
    """The published book; ``url`` is empty where there is none.

    Raises:
        CourseError: the address isn't one of the web.
    """

    url: str = ""

    def __post_init__(self) -> None:
        if self.url and (
            urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname
        ):
            raise CourseError(f"{self.url!r} is no address of a book: write it as https://…, or leave it out")

    def reading(self, day: DayMark, task: TaskMark) -> Reading:
        """The section of a task."""
        section = f"Task {task.name.rpartition('.')[2]}: {task.title}"
        page = quote(day.chapter.removesuffix(".md")) + ".html"
        link = f"{self.url.rstrip('/')}/{page}#{_anchor(section)}" if self.url else ""
        return Reading(line(day.chapter), line(section), link, open_command(line(day.name)))


def open_command(day: str) -> str:
    """The command that opens the chapter of a day in the learner's own course."""
    return f"pdm run book --open {day}"


def _anchor(heading: str) -> str:
    """The id that mdBook gives a heading."""
    kept = re.sub(r"[^\w\s-]", "", heading.strip().lower())
    return quote(re.sub(r"\s", "-", kept))
