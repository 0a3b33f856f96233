"""The block table of the sequences that run, kept up to date from step to step (Day 4.2, given code)."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_llm.arrays import Tensor, host_array
from tiny_llm.paged.allocator import NULL_PAGE
from tiny_llm.paged.sequence import PagedSequence


class BlockTables:
    """A row of one array for each sequence that runs. A step writes only the pages that are new in it.

    So the cost of a step's table does not grow with the number of pages that the sequences have already.
    """

    def __init__(self, num_rows: int, max_pages: int) -> None:
        """All rows are free.

        Args:
            num_rows: how many sequences have pages at the same time, as a rule. There are more rows when more have.
            max_pages: M, how many pages one row has room for.
        """
        self.rows = host_array([[NULL_PAGE] * max_pages] * num_rows)
        self.free = list(range(num_rows))
        self.row_of: dict[PagedSequence, int] = {}
        # What each row lists: a sequence's own list of pages, and how many of them. A sequence that gives up pages
        # gets a new list. While the list is the same, it has only grown at its end.
        self.listed: dict[PagedSequence, tuple[list[int], int]] = {}

    def table(self, sequences: Sequence[PagedSequence]) -> Tensor:
        """The block table of a step.

        Args:
            sequences: B of them, each once, all with pages.

        Returns:
            int32 [B, M], a copy: the pages of each, in order, filled up with the null page.
        """
        rows, columns, pages = list[int](), list[int](), list[int]()
        for sequence in sequences:
            row, start, stop = self._row(sequence), self._listed(sequence), len(sequence.pages)
            if start < stop:
                rows += [row] * (stop - start)
                columns += range(start, stop)
                pages += sequence.pages[start:]
                self.listed[sequence] = sequence.pages, stop
        if pages:
            self.rows[rows, columns] = host_array(pages)
        return self.rows[[self.row_of[sequence] for sequence in sequences]]

    def _row(self, sequence: PagedSequence) -> int:
        """The row of a sequence; a free one, if it has none."""
        if sequence not in self.row_of:
            if not self.free:
                self._reclaim()
            if not self.free:
                self._grow()
            self.row_of[sequence] = self.free.pop()
        return self.row_of[sequence]

    def _listed(self, sequence: PagedSequence) -> int:
        """How many pages of a sequence its row lists; none, after the row was cleared for a new list of pages."""
        pages, count = self.listed.get(sequence, ([], 0))
        if pages is sequence.pages:
            return count
        self.rows[self.row_of[sequence]] = NULL_PAGE
        return 0

    def _reclaim(self) -> None:
        """Free the rows of the sequences that have given up all their pages."""
        for sequence in [each for each in self.row_of if not each.pages]:
            self.free.append(self.row_of.pop(sequence))
            self.listed.pop(sequence, None)

    def _grow(self) -> None:
        """Have twice as many rows."""
        count, width = self.rows.shape
        self.rows = host_array(self.rows.tolist() + [[NULL_PAGE] * width] * count)
        self.free += range(count, 2 * count)
