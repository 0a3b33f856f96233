"""Which page a token lies in, and where in it: whole numbers, and no arrays (Day 3.1)."""

from __future__ import annotations

from collections.abc import Sequence


def pages_for(tokens: int, page_size: int) -> int:
    """How many pages ``tokens`` tokens need; the last page may be partly filled."""
    return -(-tokens // page_size)


def places_of(pages: Sequence[int], start: int, stop: int, page_size: int) -> list[int]:
    """The places of the tokens at positions ``start`` … ``stop`` − 1 of a sequence.

    Args:
        pages: the sequence's pages, in order. Position p lies in page number p // P of them, at offset p % P.
        start: the first position.
        stop: one more than the last position; there are pages for all of them.
        page_size: P.
    """
    return [pages[p // page_size] * page_size + p % page_size for p in range(start, stop)]
