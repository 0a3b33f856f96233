"""What is wrong with a committed notebook: its text, its size, its outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from authoring.notebooks.making import MEASURED

LARGEST = 300_000  # bytes
LARGEST_OF_ALL = 6_000_000


def cells_differ(wanted: Any, found: Any) -> bool:
    """Whether a notebook's cells, whatever they gave, aren't those of its text."""
    return [_cell(cell) for cell in wanted.cells] != [_cell(cell) for cell in found.cells] or (
        wanted.metadata != found.metadata
    )


def output_problems(fresh: Any, committed: Any) -> Iterator[str]:
    """What a fresh run says otherwise than the committed outputs; both have the same cells.

    The outputs of measured cells are only there or not. Of a picture its kind and its text count: the last digits of
    a drawing are the machine's.
    """
    for new, old in zip(fresh.cells, committed.cells, strict=True):
        if new["cell_type"] != "code":
            continue
        if MEASURED in new["metadata"].get("tags", []):
            if bool(new["outputs"]) != bool(old["outputs"]):
                yield f"{_place(new)}: one run has an output, the other has none"
            continue
        now, then = [_said(output) for output in new["outputs"]], [_said(output) for output in old["outputs"]]
        if now != then:
            yield f"{_place(new)} gives another output than the committed one:\n{_first_difference(then, now)}"


def printed_errors(book: Any) -> Iterator[str]:
    """What was printed as an error: a notebook that readers see has none."""
    for cell in book.cells:
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream" and output["name"] == "stderr":
                yield f"{_place(cell)} writes to standard error: {output['text'].strip()[:200]}"


def _cell(cell: Any) -> tuple[object, ...]:
    return cell["cell_type"], cell["source"], tuple(cell["metadata"].get("tags", ())), cell.get("id")


def _said(output: Any) -> tuple[str, ...]:
    if output["output_type"] == "stream":
        return output["name"], output["text"]
    data = output.get("data", {})
    pictures = sorted(kind for kind in data if kind.startswith("image/"))
    return output["output_type"], *pictures, str(data.get("text/plain", ""))


def _place(cell: Any) -> str:
    first = next((line for line in cell["source"].splitlines() if line.strip()), "")
    return f"{cell['id']} ({first.strip()})"


def _first_difference(then: list[tuple[str, ...]], now: list[tuple[str, ...]]) -> str:
    old = [line for output in then for part in output for line in part.splitlines()]
    new = [line for output in now for part in output for line in part.splitlines()]
    for before, after in zip(old, new, strict=False):
        if before != after:
            return f"committed: {before}\nnow:       {after}"
    return f"committed: {len(old)} lines\nnow:       {len(new)} lines"
