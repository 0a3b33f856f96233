"""How many of the free pages a request may take, so that every request can come to its end (Day 3.5)."""

from __future__ import annotations

from collections.abc import Sequence


class Banker:
    """Shares out the free pages of one step among requests that stand in line, the oldest first.

    The banker keeps this true: if the first request in line runs to its end and gives its pages back, then the
    second, then the third, each finds the pages that it may still need. So the first request can always go on,
    however few pages are free. A request may take only as many pages as leave this true for all requests before it.

    Two things are taken for granted: no other user of the pool takes pages, or keeps one that a request gives back;
    and no request ever needs more pages than the most that the banker was told.

    Source: Dijkstra 1965, "Cooperating sequential processes", section 6 (the banker's algorithm), with one order
    instead of any.
    """

    def __init__(self, free: int, held: Sequence[int], most: Sequence[int]) -> None:
        """Begin a step.

        Args:
            free: how many pages are free.
            held: how many pages each request holds, in the order of the line.
            most: how many pages each request may come to hold at once, at least ``held``; in the same order.
        """
        self.free = free
        # For each request in line: how many pages it finds, when those before it have ended, beyond what it lacks.
        self.spare: list[int] = []
        before = 0  # held by the requests before it
        for holds, needs in zip(held, most, strict=True):
            self.spare.append(free + before - (needs - holds))
            before += holds

    def limit(self, rank: int) -> int:
        """How many pages a request may take now: they are free, and every request before it can spare them.

        It changes nothing.

        Args:
            rank: how many requests stand before it in line; 0 for the oldest.
        """
        return min([self.free, *self.spare[:rank]])

    def take(self, rank: int, count: int) -> None:
        """Note that a request takes ``count`` pages, at most its limit.

        The requests behind it lose nothing: it gives the pages back before their turn comes.

        Args:
            rank: how many requests stand before it in line.
            count: how many pages.

        Raises:
            ValueError: they are more than its limit, or fewer than 0; nothing has changed.
        """
        if not 0 <= count <= self.limit(rank):
            raise ValueError(f"request {rank} in line may take 0 to {self.limit(rank)} pages, not {count}")
        self.free -= count
        self.spare[:rank] = [spare - count for spare in self.spare[:rank]]
