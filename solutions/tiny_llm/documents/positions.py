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
    system, documents = len(segments.system), segments.documents
    if strategy == "shared":
        return [system] * len(documents), system + max(map(len, documents), default=0)
    if strategy != "offset":
        raise ValueError(f"there is no strategy {strategy!r}; choose one of: {', '.join(STRATEGIES)}")
    if max_chunk_len is None or max_chunk_len < 1:
        raise ValueError(f"offset positions need a max_chunk_len of at least 1, not {max_chunk_len}")
    for number, document in enumerate(documents, start=1):
        if len(document) > max_chunk_len:
            raise ValueError(
                f"document {number} has {len(document)} tokens: it would run into the next one, {max_chunk_len} "
                "positions behind it"
            )
    starts = [system + i * max_chunk_len for i in range(len(documents) + 1)]
    return starts[:-1], starts[-1]


def segment_positions(
    segments: Segments, strategy: str = "shared", max_chunk_len: int | None = None
) -> list[int]:
    """The position of each of the L tokens, in the order of ``segments.token_ids``.

    Args:
        segments: the prompt.
        strategy: as for :func:`segment_starts`, which see for the errors, too.
        max_chunk_len: likewise.
    """
    starts, question = segment_starts(segments, strategy, max_chunk_len)
    positions = list(range(len(segments.system)))
    for start, document in zip(starts, segments.documents, strict=True):
        positions += range(start, start + len(document))
    return positions + list(range(question, question + len(segments.question)))


def segment_ids(segments: Segments) -> list[int]:
    """For each of the L tokens, which segment it belongs to, in the order of ``segments.token_ids``.

    Documents have the numbers 0, 1, …; the system prompt has :data:`SYSTEM`, and the question :data:`QUESTION`.
    """
    ids = [SYSTEM] * len(segments.system)
    for number, document in enumerate(segments.documents):
        ids += [number] * len(document)
    return ids + [QUESTION] * len(segments.question)
