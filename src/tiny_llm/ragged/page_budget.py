"""Which of the free pages a request may take, so that nobody is left stranded (Day 3.6)."""

from __future__ import annotations

from collections.abc import Sequence


class PageBudget:
    """Shares out the free pages of one step among requests that stand in line, the oldest first.

    What it keeps true: if the first in line runs to its end and gives its pages back, then the second, then the
    third, each finds the pages that it may still need. So however little is free, the first can always go on. A
    request may take no more than leaves this true for all who stand before it.

    Source: Dijkstra 1965, "Cooperating sequential processes", section 6 (the banker's algorithm), with one order
    instead of any.
    """

    def __init__(self, free: int, held: Sequence[int], most: Sequence[int]) -> None:
        """Begin a step.

        Args:
            free: how many pages nobody holds.
            held: how many pages each holds, in the order of the line.
            most: how many pages each may come to hold at once, at least ``held``; in the same order.
        """
        raise NotImplementedError("Week 3 Day 6 Task 2: Pages to spare")

    def limit(self, place: int) -> int:
        """How many pages the one at ``place`` in line may take now: free, and to spare for all before it.

        Args:
            place: 0 is the oldest.
        """
        raise NotImplementedError("Week 3 Day 6 Task 2: Pages to spare")

    def take(self, place: int, count: int) -> None:
        """Note that the one at ``place`` takes ``count`` pages, at most its limit.

        Those behind it lose nothing: it gives the pages back before their turn comes.

        Raises:
            ValueError: they are more than its limit, or fewer than none.
        """
        raise NotImplementedError("Week 3 Day 6 Task 2: Pages to spare")
