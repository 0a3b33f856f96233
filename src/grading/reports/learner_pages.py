"""A learner's page, as HTML and as Markdown."""

from __future__ import annotations

from grading.marks import Marks
from grading.reports.book import Book
from grading.reports.learner_view import view_of
from grading.reports.pages import html, marked_down


def learner_html(marks: Marks, book: Book, course: str) -> bytes:
    """A page that needs nothing but itself; ``course`` is the course's name."""
    return html("learner.html", view=view_of(marks, book), course=course)


def learner_markdown(marks: Marks, book: Book, course: str) -> bytes:
    """The same as Markdown."""
    return marked_down("learner.md", view=view_of(marks, book), course=course)
