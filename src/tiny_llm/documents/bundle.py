"""Two kinds of sequences that Day 4.5 needs beside the ordinary one."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.scheduling.standing import Standing


class SaltedSequence(PagedSequence):
    """A sequence whose keys and values depend on more than its tokens: on their positions, or on other sequences."""

    def __init__(self, allocator: PageAllocator, page_size: int, first: int, salt: Hashable) -> None:
        """Start empty (given code).

        Args:
            allocator: hands out the pages.
            page_size: P.
            first: from which of its tokens on the keys and values depend on more than the tokens up to there.
            salt: what else they depend on. Where it is equal, and the tokens are, keys and values are equal.
        """
        super().__init__(allocator, page_size)
        self.first = first
        self.salt = salt

    def salted(self, token_ids: Sequence[int]) -> list[Hashable]:
        """What a tree of pages knows the tokens by: their ids, but for the first one that the salt touches.

        In a tree one is enough: what comes behind it hangs below it.

        Args:
            token_ids: all tokens of the request. They stay as they are.

        Returns:
            the ids, with the pair of salt and id in place of the one at ``first``, if there is one.
        """
        raise NotImplementedError("Week 4 Day 5 Task 3: What the tree knows a page by")


class Bundle(PagedSequence):
    """Sequences that begin together, and give up their pages together (given code).

    To a scheduler it is one sequence. It has no pages of its own.
    """

    def __init__(self, members: Sequence[Standing]) -> None:
        """Put some together.

        Args:
            members: each with its request and its sequence.
        """
        self.members = members
        self.pinned = False  # whether one of them is in the step that is being planned

    @property
    def pages(self) -> list[int]:  # type: ignore[override]
        """The pages of all members; one that several hold is there several times."""
        return [page for each in self.members for page in each.sequence.pages]

    @property
    def length(self) -> int:  # type: ignore[override]
        """How many tokens of the members are in the pool, in all."""
        return sum(each.sequence.length for each in self.members)
