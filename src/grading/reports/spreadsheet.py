"""CSV that a spreadsheet opens without running anything in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from grading.reports.text import line, number

CELL_LIMIT = 1_000
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")

Cell = str | int | float | None


def table(rows: Iterable[Iterable[Cell]], *, mark: bool) -> bytes:
    """Rows as CSV in UTF-8 with ``\\r\\n`` ends; with ``mark`` a byte order mark, by which spreadsheets know UTF-8.

    A text that a spreadsheet would take for a formula gets a ``'`` before it. Numbers have at most two decimals; None
    is an empty cell.
    """
    text = io.StringIO()
    csv.writer(text).writerows([_cell(cell) for cell in row] for row in rows)
    return text.getvalue().encode("utf-8-sig" if mark else "utf-8")


def _cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        shown = line(cell, CELL_LIMIT)
        return f"'{shown}" if cell.startswith(_FORMULA) or shown.startswith(_FORMULA) else shown
    return number(cell)
