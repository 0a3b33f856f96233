"""Where the pages of requests come from, and where they go: here without sharing (Day 4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from tiny_llm.paged.allocator import OutOfPages, PageAllocator
from tiny_llm.paged.places import pages_for
from tiny_llm.paged.sequence import PagedSequence


class BasePageCache:
    """The life cycle of the pages of an engine, in its simplest form: nothing is shared, nothing is kept.

    A step uses it in this order, for each sequence that takes part: :meth:`match`, :meth:`acquire`, :meth:`publish`.
    Then the model runs. Then comes :meth:`commit`; or, if the model failed, :meth:`release` for each of these
    sequences, back to what it had before the step, and :meth:`withdraw`. A sequence that has ended is released.

    All pages of its sequences come and go through the cache alone; others may use the allocator, too.
    """

    def __init__(self, allocator: PageAllocator, page_size: int) -> None:
        """Start without any sequence.

        Args:
            allocator: hands out the pages.
            page_size: P, tokens per page.

        Raises:
            ValueError: ``page_size`` is below 1.
        """
        if page_size < 1:
            raise ValueError(f"pages of {page_size} tokens: there must be at least 1")
        self.allocator = allocator
        self.page_size = page_size
        self.evicted = 0  # pages that were evicted so far

    @property
    def available(self) -> int:
        """How many pages :meth:`acquire` can find: those that are free, and those that may be evicted."""
        return len(self.allocator.free_pages)

    def match(self, sequence: PagedSequence, token_ids: Sequence[int]) -> int:
        """Let a sequence go on with pages that hold its next tokens already; here there are never any.

        Args:
            sequence: the sequence, behind whose pages the search begins.
            token_ids: all tokens of its request.

        Returns:
            how many tokens were found: the sequence's pages and its length have grown by these.
        """
        return 0

    def lacking(self, sequence: PagedSequence, count: int) -> int:
        """How many more pages a sequence needs for ``count`` more tokens; 0 if its pages have room for them."""
        return max(0, pages_for(sequence.length + count, self.page_size) - len(sequence.pages))

    def acquire(self, sequence: PagedSequence, count: int) -> None:
        """Give a sequence the pages that it lacks for ``count`` more tokens: all of them or none.

        Raises:
            OutOfPages: fewer pages are available: the error of :meth:`require_available`, whose message says how many
                it lacks and how many are available. Nothing has changed.
        """
        self.require_available(self.lacking(sequence, count))
        sequence.reserve(count)

    def publish(self, sequence: PagedSequence, token_ids: Sequence[int], stop: int) -> None:
        """Let other sequences find the pages of this one that will be full after the step; here none can be found.

        Args:
            sequence: the sequence, with pages for its tokens up to ``stop``.
            token_ids: all tokens of its request.
            stop: how many of its tokens the pool holds after the step that is being planned.
        """

    def release(self, sequence: PagedSequence, keep: int = 0) -> None:
        """Give up a sequence's pages, all but those of its first ``keep`` tokens; so many tokens are left in it.

        A sequence that gives up pages gets a new list for the others. A list that is still the same has only grown:
        Day 4.2's block tables rely on it.

        Args:
            sequence: the sequence.
            keep: how many of its tokens stay: none, or those that it had before this step. A page with some of them
                stays, too.
        """
        pages = pages_for(keep, self.page_size)
        self.allocator.free(sequence.pages[pages:])
        sequence.pages, sequence.length = sequence.pages[:pages], keep

    def frees(self, sequence: PagedSequence) -> bool:
        """Whether a page becomes available if this sequence alone is released (Day 4.3).

        The last page of a sequence is held by no more sequences than those before it.
        """
        return bool(sequence.pages) and self.allocator.references[sequence.pages[-1]] == 1

    def commit(self) -> None:
        """Note that the model has run: all that was published is computed."""

    def withdraw(self) -> None:
        """Take back what was published and never computed: the model has failed.

        Before it is called, every sequence of the step is released to the tokens that it had.
        """

    def check(self, sequences: Collection[PagedSequence]) -> None:
        """Prove that the books balance: each page is free, or in use by as many sequences as it has references.

        It changes nothing (given code).

        Args:
            sequences: all that hold pages.

        Raises:
            RuntimeError: they don't; the message names the page.
        """
        self.allocator.check()
        holders = Counter(page for sequence in sequences for page in sequence.pages)
        for page, references in enumerate(self.allocator.references):
            if references != holders[page]:
                raise RuntimeError(f"page {page} has {references} references, and {holders[page]} holders")

    def require_available(self, count: int) -> None:
        """Refuse to look for more pages than there are (given code).

        Raises:
            OutOfPages: fewer than ``count`` are available.
        """
        if count > self.available:
            raise OutOfPages(f"pages lacking: {count}, available: {self.available}")
