"""A request that runs: its tokens, and the pages that they lie in (given code)."""

from __future__ import annotations

from dataclasses import dataclass

from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.request import Request


@dataclass(eq=False)
class Running:
    """A request and its sequence: together they say what is left to compute.

    The request knows all its tokens; the sequence knows how many of them are in the pool. The rest is *due*: what is
    left of the prompt, or the newest token. So a prompt, a chunk of it and a decode are the same kind of work.
    """

    request: Request
    sequence: PagedSequence
    rank: int = 0  # which number it came as, for engines that don't keep their requests in order

    @property
    def due(self) -> int:
        """How many of its tokens the pool doesn't hold yet."""
        return len(self.request.token_ids) - self.sequence.length

    @property
    def decoding(self) -> bool:
        """Whether only the newest token that it has generated is due."""
        return self.due == 1 and self.request.num_generated > 0

    def next_ids(self, count: int) -> list[int]:
        """The next ``count`` token ids that are due."""
        start = self.sequence.length
        return self.request.token_ids[start : start + count]

    def next_positions(self, count: int) -> list[int]:
        """Where the next ``count`` tokens that are due stand: here, each behind the one before it."""
        start = self.sequence.length
        return list(range(start, start + count))
