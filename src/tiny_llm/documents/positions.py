"""Where the tokens of a document prompt stand, and which segment each belongs to (Day 4.4)."""

from __future__ import annotations

from tiny_llm.documents.prompt import Segments

STRATEGIES = ("shared", "offset")
"""How documents get their positions: all from the same one on, or each in a range of its own."""

SYSTEM, QUESTION = -1, -2
"""Segment ids that are no document's number."""


def segment_starts(
    segments: Segments, strategy: str = "shared", max_chunk_len: int | None = None
) -> tuple[list[int], int]:
    """The first position of each document, and that of the question.

    - ``shared``: each document starts where the system prompt ends. The question starts where the longest document
      ends.
    - ``offset``: document i, counted from 0, starts i · ``max_chunk_len`` behind the system prompt. The question
      starts where another document would.

    Without documents the question starts where the system prompt ends. What is generated continues the question.

    Args:
        segments: the prompt.
        strategy: one of :data:`STRATEGIES`.
        max_chunk_len: how many positions a document may use. ``offset`` needs it; ``shared`` doesn't look at it.

    Raises:
        ValueError: there is no such strategy; or, with ``offset``, ``max_chunk_len`` is missing or below 1, or a
            document is longer: the message says which one, counted from 1.
    """
    raise NotImplementedError("Week 4 Day 4 Task 2: Positions")


def segment_positions(
    segments: Segments, strategy: str = "shared", max_chunk_len: int | None = None
) -> list[int]:
    """The position of each of the L tokens, in the order of ``segments.token_ids``.

    Args:
        segments: the prompt.
        strategy: as for :func:`segment_starts`, which see for the errors, too.
        max_chunk_len: likewise.
    """
    raise NotImplementedError("Week 4 Day 4 Task 2: Positions")


def segment_ids(segments: Segments) -> list[int]:
    """For each of the L tokens, which segment it belongs to, in the order of ``segments.token_ids``.

    Documents have the numbers 0, 1, …; the system prompt has :data:`SYSTEM`, and the question :data:`QUESTION`.
    """
    raise NotImplementedError("Week 4 Day 4 Task 3: The mask")
