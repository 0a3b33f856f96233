"""Writes the list of similar submissions: ``similar.html``, with the code side by side, and ``similar.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coursekit.files import write_files
from grading.reports.pages import html
from grading.reports.spreadsheet import table
from grading.reports.text import line, visible
from grading.similarity.finding import Pair, SharedFunction, Similarity
from grading.similarity.reading import Written

COLUMNS = ("first", "second", "shared fingerprints", "% of the first", "% of the second", "functions")
WITH_CODE = 40
"""The code of the first so many pairs is shown."""
FUNCTIONS_SHOWN = 4
LINES_SHOWN = 60
_AROUND, _LINE_LIMIT = 2, 160


@dataclass(frozen=True)
class CodeLine:
    """A line of an excerpt; ``shared`` where it is part of what both have."""

    number: int
    text: str
    shared: bool


@dataclass(frozen=True)
class Side:
    """The lines of one submission; ``more`` counts those that are left out."""

    name: str
    lines: tuple[CodeLine, ...]
    more: int


@dataclass(frozen=True)
class FunctionView:
    """One function of a pair, side by side."""

    ref: str
    sides: tuple[Side, Side]


@dataclass(frozen=True)
class PairView:
    """One pair as the page shows it; ``more`` counts the functions that are left out."""

    first: str
    second: str
    shared: int
    first_share: str
    second_share: str
    names: str
    functions: tuple[FunctionView, ...]
    more: int


def write_similar(similarity: Similarity, out: Path, course: str = "tiny-llm") -> tuple[Path, Path]:
    """Write both files into a folder, which is made where it is missing.

    Returns:
        The page and the table.

    Raises:
        CourseError: a file can't be written; then neither is changed.
    """
    page, rows = out / "similar.html", out / "similar.csv"
    write_files({page: similar_html(similarity, course), rows: similar_csv(similarity)})
    return page, rows


def similar_html(similarity: Similarity, course: str) -> bytes:
    """A page that needs nothing but itself."""
    return html(
        "similar.html",
        course=course,
        pairs=[_view(pair, with_code=index < WITH_CODE) for index, pair in enumerate(similarity.pairs)],
        left_out=similarity.left_out,
        compared=len(similarity.own),
        unread=[(line(each.submission), line(each.file), line(each.why, 300)) for each in similarity.unread],
    )


def similar_csv(similarity: Similarity) -> bytes:
    """A row per pair."""
    rows = [
        (
            *(pair.first, pair.second, pair.shared, 100 * pair.first_share, 100 * pair.second_share),
            ", ".join(str(each.ref) for each in pair.functions),
        )
        for pair in similarity.pairs
    ]
    return table([COLUMNS, *rows], mark=True)


def _view(pair: Pair, *, with_code: bool) -> PairView:
    shown = pair.functions[: FUNCTIONS_SHOWN if with_code else 0]
    return PairView(
        first=line(pair.first),
        second=line(pair.second),
        shared=pair.shared,
        first_share=f"{100 * pair.first_share:.0f}",
        second_share=f"{100 * pair.second_share:.0f}",
        names=", ".join(each.ref.qualname for each in pair.functions[:8]),
        functions=tuple(_function(pair, each) for each in shown),
        more=len(pair.functions) - len(shown),
    )


def _function(pair: Pair, function: SharedFunction) -> FunctionView:
    first = _side(pair.first, function.first, function.first_lines)
    second = _side(pair.second, function.second, function.second_lines)
    return FunctionView(str(function.ref), (first, second))


def _side(name: str, function: Written, shared: frozenset[int]) -> Side:
    """From a little before the first shared line to a little after the last."""
    start, end = min(shared) - _AROUND, max(shared) + _AROUND
    lines = [
        CodeLine(number, _bounded(text), number in shared)
        for number, text in enumerate(function.text.split("\n"), function.line)
        if start <= number <= end
    ]
    return Side(line(name), tuple(lines[:LINES_SHOWN]), max(0, len(lines) - LINES_SHOWN))


def _bounded(text: str) -> str:
    shown = visible(text[:_LINE_LIMIT])
    return f"{shown}{'…' if len(text) > _LINE_LIMIT else ''}".expandtabs(4)
