"""Pages of branches and questions in one tree, and sequences that come and go together (Day 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiny_llm.documents.bundle import Bundle, SaltedSequence
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.prefix.trie_cache import TrieCache


class DocumentCache(TrieCache):
    """A tree of pages for sequences of three kinds: ordinary ones, salted ones and bundles.

    A salted sequence meets another one only where their salts are equal. What is asked of a bundle is asked of all
    its members: so a scheduler can let a question and its branches begin, and preempt them, as if they were one.
    """

    def match(self, sequence: PagedSequence, token_ids: Sequence[int]) -> int:
        """Let a sequence go on with pages of the tree, as :meth:`TrieCache.match` does.

        A salted sequence searches with what :meth:`SaltedSequence.salted` gives. For a bundle, each member searches
        with the tokens of its own request, in the order of the members.

        Args:
            sequence: the sequence.
            token_ids: all tokens of its request; of a bundle they are not looked at.

        Returns:
            how many tokens were found; for a bundle, of all members together.
        """
        raise NotImplementedError("Week 4 Day 5 Task 3: What the tree knows a page by")

    def publish(self, sequence: PagedSequence, token_ids: Sequence[int], stop: int) -> None:
        """Let others find the pages of a sequence, as :meth:`TrieCache.publish` does.

        Those of a salted sequence go into the tree with what :meth:`SaltedSequence.salted` gives. A bundle is never
        published.
        """
        raise NotImplementedError("Week 4 Day 5 Task 3: What the tree knows a page by")

    def lacking(self, sequence: PagedSequence, count: int) -> int:
        """How many more pages a sequence needs for ``count`` more tokens.

        A bundle needs the pages for all that is due of its members, whatever the count. Pages that two members will
        share count twice: which they are is known only when they are planned.
        """
        raise NotImplementedError("Week 4 Day 5 Task 4: The life of the pages")

    def release(self, sequence: PagedSequence, keep: int = 0) -> None:
        """Give up a sequence's pages, all but those of its first ``keep`` tokens.

        A bundle gives up all pages of all members, or, with a ``keep`` other than 0, nothing: there its members are
        released one by one, since they have had different numbers of tokens.
        """
        raise NotImplementedError("Week 4 Day 5 Task 4: The life of the pages")

    def frees(self, sequence: PagedSequence) -> bool:
        """Whether a page becomes available if this sequence alone is released.

        For a bundle, whether one of its members frees a page; never if one of them is in the step that is being
        planned (``pinned``): its pages must stay.
        """
        raise NotImplementedError("Week 4 Day 5 Task 4: The life of the pages")


def _known_by(sequence: PagedSequence, token_ids: Sequence[int]) -> Sequence[Any]:
    return sequence.salted(token_ids) if isinstance(sequence, SaltedSequence) else token_ids
