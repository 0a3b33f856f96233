"""A request whose question is about documents (Day 4.5, given code)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from tiny_llm.documents.positions import segment_starts
from tiny_llm.documents.prompt import Segments
from tiny_llm.generate import Sample, greedy
from tiny_llm.request import Request


class DocumentRequest(Request):
    """The question of a document prompt on its way through an engine, and the segments that it attends to.

    As a request it has the question's tokens and the output alone: these are the ones that its own pages hold. The
    sampler gets no others.
    """

    def __init__(
        self,
        segments: Segments,
        max_tokens: int,
        end_ids: Collection[int] = (),
        sample: Sample = greedy,
        priority: int = 0,
        client: str = "",
        strategy: str = "shared",
        max_chunk_len: int | None = None,
    ) -> None:
        """Begin with the question alone.

        Args:
            segments: the prompt.
            max_tokens: how many tokens to generate at most.
            end_ids: as for :class:`Request`; sample, priority and client likewise.
            strategy: where documents and question stand, see :func:`segment_starts`.
            max_chunk_len: likewise.

        Raises:
            ValueError: as :func:`segment_starts` says.
        """
        super().__init__(segments.question, max_tokens, end_ids, sample, priority, client)
        # Where the question starts, the request itself keeps.
        starts, self.start = segment_starts(segments, strategy, max_chunk_len)
        self.segments = segments
        # The documents that have tokens: the first position of each, and its tokens.
        self.documents = [
            (start, document) for start, document in zip(starts, segments.documents, strict=True) if document
        ]
        # What the question attends to and where it starts, in short: equal for the same documents in the same order.
        seen = segments.system, self.documents, self.start
        self.digest = hashlib.sha256(repr(seen).encode()).hexdigest()

    def refusal(self, max_positions: int) -> str | None:
        """Why this request can't ever run, or None: as for :class:`Request`, with the positions that come before."""
        if self.prompt_len == 0:
            return "the question is empty: there is nothing to continue"
        if self.start + self.prompt_len >= max_positions:
            return (
                f"the question ends at position {self.start + self.prompt_len - 1}; the last one that fits this "
                f"model is {max_positions - 2}"
            )
        return None

    def finished(self, max_positions: int) -> bool:
        """Whether the output is complete: as for :class:`Request`, with the positions that come before."""
        return super().finished(max_positions - self.start)
