"""The requests of a batch's seats, and how many tokens each brings to a step (Day 3.6)."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_llm.paged.limits import most_tokens
from tiny_llm.paged.places import pages_for
from tiny_llm.paged.running import Running
from tiny_llm.ragged.banker import Banker
from tiny_llm.ragged.decode_state import DecodeState
from tiny_llm.request import Request


class SamplingState:
    """The scheduler of a batch of B seats: which request is in which seat, and how many tokens each brings to a step.

    The decode state holds the pages of the same seats. Each request runs on the sequence of its own seat, and brings
    its own way of sampling and its own end tokens: nothing is sampled here.

    Source: the names are simply's.
    """

    def __init__(self, decode_state: DecodeState, max_positions: int) -> None:
        """All seats are idle.

        Args:
            decode_state: the pages of the same seats, empty.
            max_positions: how many positions prompt and output of a request together may use.
        """
        self.decode_state = decode_state
        self.max_positions = max_positions
        self.seats: list[Running | None] = [None] * decode_state.num_seats
        self.pushed = 0  # how many requests were pushed so far: the rank of the next one

    @property
    def idle(self) -> list[int]:
        """The seats without a request."""
        return [seat for seat, running in enumerate(self.seats) if running is None]

    @property
    def line(self) -> list[tuple[int, Running]]:
        """The seats with a request, and what runs in them, in the order in which the requests came."""
        busy = [(seat, running) for seat, running in enumerate(self.seats) if running is not None]
        return sorted(busy, key=lambda each: each[1].rank)

    def push(self, request: Request) -> int:
        """Put a request into the first idle seat, behind all others in line.

        Tokens that it has generated already are kept: it goes on behind them.

        Args:
            request: can run here, is not finished, and is in no seat.

        Returns:
            the seat.

        Raises:
            ValueError: no seat is idle; nothing has changed.
        """
        raise NotImplementedError("Week 3 Day 6 Task 1: In and out")

    def completed_mask(self) -> list[bool]:
        """For each seat, whether its request has all its tokens; False for an idle seat. It changes nothing."""
        raise NotImplementedError("Week 3 Day 6 Task 1: In and out")

    def issue_lens(self, token_budget: int) -> list[int]:
        """How many tokens each seat brings to the next step. It changes nothing.

        First the requests that decode, with the one token that is due; then the others; both in the order in which
        they came. Each brings the least of three numbers: what is due, what is left of the budget, and what has room
        in the pages that it holds and those that it may take.

        Args:
            token_budget: how many tokens all seats together bring at most.

        Returns:
            a number for each of the B seats, 0 for a seat that brings nothing.

        Raises:
            ValueError: the budget is below 1.
        """
        raise NotImplementedError("Week 3 Day 6 Task 2: Who brings how much")

    def ragged_issue_tokens(self, lens: Sequence[int]) -> list[int]:
        """The next tokens of all seats in one row, those of seat 0 first. It changes nothing.

        Args:
            lens: how many tokens each of the B seats brings; 0 for an idle seat.
        """
        raise NotImplementedError("Week 3 Day 6 Task 2: Who brings how much")

    def get(self, mask: Sequence[bool]) -> list[Running]:
        """What runs in the marked seats, in the order of the seats; an idle seat is left out. It changes nothing.

        Args:
            mask: a bool for each of the B seats.
        """
        raise NotImplementedError("Week 3 Day 6 Task 1: In and out")

    def release(self, mask: Sequence[bool]) -> None:
        """Make the marked seats idle, and give their pages back. An idle seat may be marked, too.

        Args:
            mask: a bool for each of the B seats.

        Raises:
            ValueError: there is not a mark for each of the B seats; nothing has changed.
        """
        raise NotImplementedError("Week 3 Day 6 Task 1: In and out")
