"""The page of a class, as HTML and as Markdown. It is for the instructor: it has the notes."""

from __future__ import annotations

from collections.abc import Sequence

from grading.marks import Marks
from grading.reports.class_view import view_of
from grading.reports.heat_map import LEGEND_SIDE, legend, panels
from grading.reports.looks import LOOKS
from grading.reports.pages import html, marked_down


def class_html(class_marks: Sequence[Marks], course: str) -> bytes:
    """A page that needs nothing but itself; the names lead to ``learners/NAME.html``."""
    graded = [marks for marks in class_marks if not marks.refusal]
    return html(
        "class.html",
        view=view_of(class_marks),
        course=course,
        looks=LOOKS,
        panels=panels(graded),
        legend=legend(),
        side=LEGEND_SIDE,
    )


def class_markdown(class_marks: Sequence[Marks], course: str) -> bytes:
    """The same as Markdown, without the figure."""
    return marked_down("class.md", view=view_of(class_marks), course=course, looks=LOOKS)
