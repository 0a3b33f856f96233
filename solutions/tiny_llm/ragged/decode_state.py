"""The pages of a batch's seats: taken when tokens come, and listed in a table that is kept up to date (Day 3.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tiny_llm.arrays import host_array
from tiny_llm.paged.allocator import NULL_PAGE, PageAllocator
from tiny_llm.paged.places import pages_for
from tiny_llm.paged.sequence import PagedSequence


class DecodeState:
    """The physical side of a batch of B seats: a sequence in each, and the table that attention reads.

    It knows nothing of requests and token ids. The sequences hold the pages. The table lists them once more, as an
    array, and changes with them: a step's metadata is made from it without looking at any sequence's pages. So pages
    come and go through this class alone; lengths advance in the sequences.
    """

    def __init__(self, allocator: PageAllocator, page_size: int, num_seats: int, max_pages: int) -> None:
        """All seats are empty.

        Args:
            allocator: hands out the pages; others may use it, too.
            page_size: P, tokens per page.
            num_seats: B.
            max_pages: M, how many pages one seat may hold at most.

        Raises:
            ValueError: ``num_seats`` or ``max_pages`` is below 1.
        """
        if num_seats < 1 or max_pages < 1:
            raise ValueError(f"{num_seats} seats with {max_pages} pages each: both must be at least 1")
        self.allocator = allocator
        self.page_size = page_size
        self.max_pages = max_pages
        self.sequences = [PagedSequence(allocator, page_size) for _ in range(num_seats)]
        # [B, M], on the host: the pages of each seat, in order, and then the null page.
        self.page_indices = host_array([[NULL_PAGE] * max_pages] * num_seats)

    @property
    def num_seats(self) -> int:
        """B."""
        return len(self.sequences)

    @property
    def available_page_indices(self) -> list[int]:
        """The free pages, the next one last: the allocator's list."""
        return self.allocator.free_pages

    @property
    def held(self) -> list[int]:
        """How many pages each seat holds."""
        return [len(sequence.pages) for sequence in self.sequences]

    def allocate(self, q_lens: Sequence[int]) -> None:
        """Give each seat the pages that it lacks for its new tokens: all seats get theirs, or none gets any.

        A seat takes a page only when the pages that it holds have no room left. New pages stand behind those that it
        holds, in its sequence and in its row. Seats are served in order. Lengths stay as they are.

        Args:
            q_lens: how many tokens each of the B seats brings to the next step; 0: it takes no part.

        Raises:
            OutOfPages: fewer pages are free than all seats together lack; the message says how many are wanted and
                how many are free. Nothing has changed.
            ValueError: there are not B numbers, one is negative, or a seat would need more pages than it may hold;
                then the message names the seat. Nothing has changed.
        """
        if len(q_lens) != self.num_seats or min(q_lens) < 0:
            raise ValueError(
                f"{list(q_lens)}: there must be a number, 0 or more, for each of {self.num_seats} seats"
            )
        steps = zip(self.sequences, q_lens, strict=True)
        wanted = [pages_for(sequence.length + new, self.page_size) for sequence, new in steps]
        most = max(wanted)
        if most > self.max_pages:
            raise ValueError(f"seat {wanted.index(most)} needs {most} pages; it may hold {self.max_pages}")
        # The entries of the table to fill: none for a seat that holds as many pages as it wants, or more.
        entries = [
            (seat, column)
            for seat, (have, want) in enumerate(zip(self.held, wanted, strict=True))
            for column in range(have, want)
        ]
        seats, columns = [seat for seat, _ in entries], [column for _, column in entries]
        pages = self.allocator.allocate(len(entries))
        for seat, page in zip(seats, pages, strict=True):
            self.sequences[seat].pages.append(page)
        self.page_indices[seats, columns] = host_array(pages)

    def release(self, mask: Sequence[bool]) -> None:
        """Give back the pages of the marked seats, which are empty then; their rows list the null page alone.

        A seat gives up its own reference to each page: a page that is held elsewhere, too, stays in use.

        Args:
            mask: a bool for each of the B seats. An empty seat may be marked, too.

        Raises:
            ValueError: there are not B of them; nothing has changed.
        """
        if len(mask) != self.num_seats:
            raise ValueError(f"{len(mask)} marks were given for {self.num_seats} seats")
        for seat, marked in enumerate(mask):
            if marked:
                self.sequences[seat].release()
                self.page_indices[seat] = NULL_PAGE

    def check(self) -> None:
        """Prove that allocator, sequences and table agree.

        The allocator's own books balance. Each page that seats hold is one of the allocator's, and has at least one
        reference for each time that a seat holds it. Each row lists the pages of its seat, in order, and then the
        null page. Each seat has 0 tokens or more, and its pages have room for them. It changes nothing, and may be
        called between any two steps.

        Raises:
            RuntimeError: something doesn't agree; the message names the page or the seat.
        """
        self.allocator.check()
        holders = Counter(page for sequence in self.sequences for page in sequence.pages)
        for page, times in holders.items():
            if not NULL_PAGE < page < self.allocator.num_pages or self.allocator.references[page] < times:
                raise RuntimeError(
                    f"page {page} is held {times} times by seats, more often than the allocator knows"
                )
        for seat, sequence in enumerate(self.sequences):
            row, pages = self.page_indices[seat].tolist(), sequence.pages
            if row != pages + [NULL_PAGE] * (self.max_pages - len(pages)):
                raise RuntimeError(f"seat {seat} holds the pages {pages}, and its row lists {row}")
            if not 0 <= sequence.length <= len(pages) * self.page_size:
                raise RuntimeError(
                    f"seat {seat} has {sequence.length} tokens in {len(pages)} pages of {self.page_size}"
                )
