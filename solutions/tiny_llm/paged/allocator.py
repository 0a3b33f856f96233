"""Which pages of the pool are free, and how many hold each of the others (Day 3.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

NULL_PAGE = 0
"""Never handed out: tables are filled up with it, so that a stray read or write harms no request."""


class OutOfPages(Exception):
    """Fewer pages are free than were asked for. Nothing was taken."""


class PageAllocator:
    """Hands out pages by number and takes them back. It knows nothing of the keys and values in them.

    A page has one reference for each sequence that holds it. A page without references is free.
    """

    def __init__(self, num_pages: int) -> None:
        """Start with all pages free except the null page.

        Args:
            num_pages: how many pages there are, the null page included.

        Raises:
            ValueError: there is no page beside the null page.
        """
        if num_pages < 2:
            raise ValueError(f"{num_pages} pages: there must be at least 2, the null page and one more")
        self.num_pages = num_pages
        self.references = [0] * num_pages  # one number per page; 0: free (or the null page)
        self.free_pages = list(range(num_pages - 1, NULL_PAGE, -1))  # the last one is handed out next

    def allocate(self, count: int) -> list[int]:
        """Take ``count`` free pages, with one reference each; all of them or none.

        The page that was freed last is handed out first: its memory may still be in a cache of the processor.

        Raises:
            OutOfPages: fewer than ``count`` are free; the message says how many were wanted and how many are free.
            ValueError: ``count`` is negative.
        """
        if count < 0:
            raise ValueError(f"can't allocate {count} pages")
        if count > len(self.free_pages):
            raise OutOfPages(f"{count} pages wanted, {len(self.free_pages)} of {self.num_pages - 1} free")
        pages = [self.free_pages.pop() for _ in range(count)]
        for page in pages:
            self.references[page] = 1
        return pages

    def share(self, pages: Sequence[int]) -> None:
        """Add a reference to each of these pages, which are in use: one more sequence holds them.

        A page that is listed twice gets two, if it has two already.

        Raises:
            ValueError: as for :meth:`free`. No reference was added then.
        """
        self._require_used(pages)
        for page in pages:
            self.references[page] += 1

    def free(self, pages: Sequence[int]) -> None:
        """Give up one reference to each page; a page without references is free again.

        Raises:
            ValueError: a page is free already, doesn't exist, is the null page, or is listed more often than it has
                references; the message names the page. No reference was given up then.
        """
        self._require_used(pages)
        for page in pages:
            self.references[page] -= 1
            if self.references[page] == 0:
                self.free_pages.append(page)

    def check(self) -> None:
        """Prove that every page except the null page is either free or in use, and that none is both or lost.

        It changes nothing.

        Raises:
            RuntimeError: the books don't balance; the message says which pages are wrong.
        """
        listed = Counter(self.free_pages)
        if self.references[NULL_PAGE] or listed[NULL_PAGE]:
            raise RuntimeError(f"page {NULL_PAGE} is the null page: never in use, never free")
        for page in range(NULL_PAGE + 1, self.num_pages):
            held, times = self.references[page], listed[page]
            if held < 0 or times != int(held == 0):
                raise RuntimeError(f"page {page}: {held} references, and {times} times on the free list")
        unknown = listed.keys() - range(self.num_pages)
        if unknown:
            raise RuntimeError(f"the free list has pages that don't exist: {sorted(unknown)}")

    def _require_used(self, pages: Sequence[int]) -> None:
        """Refuse pages that are not in use, or are listed more often than they have references.

        Raises:
            ValueError: there is such a page; the message names it.
        """
        for page, times in Counter(pages).items():
            if not NULL_PAGE < page < self.num_pages:
                raise ValueError(f"there is no page {page} to hold: they are 1 to {self.num_pages - 1}")
            if self.references[page] < times:
                raise ValueError(f"page {page} has {self.references[page]} references, not {times}")
