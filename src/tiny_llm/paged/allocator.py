"""Which pages of the pool are free, and how many hold each of the others (Day 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

NULL_PAGE = 0
"""Never handed out: what a table is filled up with, so that a stray read or write harms nobody."""


class OutOfPages(Exception):
    """There are not as many free pages as were asked for. Nothing was taken."""


class PageAllocator:
    """Hands out pages by number and takes them back. It knows nothing of what lies in them.

    A page in use has as many references as there are sequences that hold it; at none it is free again.
    """

    def __init__(self, num_pages: int) -> None:
        """All pages are free, but for the null page.

        Args:
            num_pages: how many there are, the null page included.

        Raises:
            ValueError: there is no page beside the null page.
        """
        if num_pages < 2:
            raise ValueError(f"{num_pages} pages: the null page and one more are the least")
        self.num_pages = num_pages
        self.references = [0] * num_pages  # by page; 0: free (or the null page)
        self.free_pages = list(range(num_pages - 1, NULL_PAGE, -1))  # the next one last

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` free pages, with one reference each; all of them or none.

        A page that was freed last is handed out first: its memory may still be in a cache.

        Raises:
            OutOfPages: fewer than ``count`` are free; the message says how many were wanted and how many there are.
            ValueError: ``count`` is negative.
        """
        raise NotImplementedError("Week 3 Day 1 Task 1: The allocator")

    def share(self, pages: Sequence[int]) -> None:
        """Add a reference to each of some pages in use: one more sequence holds them.

        Raises:
            ValueError: a page is free, the null page, or unknown, or is listed more often than it has references.
                No reference was added then.
        """
        raise NotImplementedError("Week 3 Day 1 Task 2: Shared pages, and the books")

    def free(self, pages: Sequence[int]) -> None:
        """Give up one reference to each page; whoever has none left is free.

        Raises:
            ValueError: a page is free already, is listed more often than it has references, is the null page, or
                unknown. Nothing was given up then.
        """
        raise NotImplementedError("Week 3 Day 1 Task 1: The allocator")

    def check(self) -> None:
        """Prove that every page but the null page is either free or in use, and none is both or lost.

        It changes nothing.

        Raises:
            RuntimeError: the books don't balance; the message says which pages are wrong.
        """
        raise NotImplementedError("Week 3 Day 1 Task 2: Shared pages, and the books")

    def _require_used(self, pages: Sequence[int]) -> None:
        """Refuse pages that are not in use, or are listed more often than they are held.

        Raises:
            ValueError: there is such a page; the message names it.
        """
        raise NotImplementedError("Week 3 Day 1 Task 1: The allocator")
