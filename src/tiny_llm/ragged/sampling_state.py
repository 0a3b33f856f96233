"""The requests of a batch: the tokens of each, how far it has come, and who brings what to a step (Day 3.6)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tiny_llm.batch import Request
from tiny_llm.paged.pool import blocks_for
from tiny_llm.ragged.decode_state import DecodeState
from tiny_llm.ragged.page_budget import PageBudget


class SamplingState:
    """The logical side of a batch of B slots: a request in each, or None.

    Each request brings its own way of sampling and its own end tokens. The pages are the decode state's; the two have
    the same slots, and are given up together. An idle slot has no tokens, no prompt, and stands at position 0.
    """

    def __init__(self, pages: DecodeState, max_positions: int) -> None:
        """All slots are idle.

        Args:
            pages: the physical side of the same slots, empty.
            max_positions: what prompt and output of a request together may use.
        """
        self.pages = pages
        self.max_positions = max_positions
        self.requests: list[Request | None] = [None] * pages.num_slots
        self.tokens: list[list[int]] = [[] for _ in range(pages.num_slots)]  # prompt and output
        self.position = [0] * pages.num_slots  # tokens that were issued: where the next one stands
        self.input_lens = [0] * pages.num_slots  # tokens of the prompt
        self.rank = [0] * pages.num_slots  # who came first has the lowest; of no account in an idle slot
        self.pushed = 0  # requests so far

    @property
    def idle(self) -> list[int]:
        """The slots without a request."""
        return [slot for slot, request in enumerate(self.requests) if request is None]

    @property
    def line(self) -> list[int]:
        """The slots with a request, in the order in which these came."""
        busy = [slot for slot, request in enumerate(self.requests) if request is not None]
        return sorted(busy, key=lambda slot: self.rank[slot])

    def longest(self, request: Request) -> int:
        """How many tokens of a request its pages may have to hold: all but the last one generated."""
        return min(len(request.prompt_ids) + request.max_tokens, self.max_positions) - 1

    def most_pages(self, request: Request) -> int:
        """How many pages it may come to hold."""
        return blocks_for(self.longest(request), self.pages.page_size)

    def refusal(self, request: Request) -> str | None:
        """Why a request can't ever run here, or None: as :meth:`Request.refusal` says, or too few pages in all."""
        reason = request.refusal(self.max_positions)
        most = min(self.pages.max_pages, self.pages.num_pages - 1)
        needed = self.most_pages(request)
        if reason is None and needed > most:
            return f"prompt and output need up to {needed} pages of {self.pages.page_size}; there are {most} at most"
        return reason

    def push(self, request: Request) -> int:
        """Put a request into the first idle slot, behind all others in line.

        It starts from its prompt alone: an ``output`` that is there already isn't taken up.

        Returns:
            the slot.

        Raises:
            ValueError: it can't ever run here, is finished already, or finds no idle slot; nothing has changed.
        """
        raise NotImplementedError("Week 3 Day 6 Task 1: In and out")

    def completed_mask(self) -> list[bool]:
        """Of each slot, whether its request has all its tokens; not so where there is none."""
        raise NotImplementedError("Week 3 Day 6 Task 1: In and out")

    def due(self) -> list[int]:
        """Of each slot, how many tokens are not issued yet: what is left of the prompt, or the newest token.

        None of a request that is complete, whose last token is never issued, and none where there is no request.
        """
        raise NotImplementedError("Week 3 Day 6 Task 3: Who issues how much")

    def issue_lens(self, capacity: int) -> list[int]:
        """How many tokens each slot issues in the next step. It changes nothing.

        First those that have issued their whole prompt, with the one token that is due; then the others; both in the
        order in which they came. Each gets all that is due, or what is left of the capacity, or what its pages and
        those that it may take have room for.

        Args:
            capacity: how many tokens all slots together issue at most.

        Returns:
            a number for each of the B slots, 0 where nothing is issued.

        Raises:
            ValueError: the capacity is below 1.
        """
        raise NotImplementedError("Week 3 Day 6 Task 3: Who issues how much")

    def ragged_issue_tokens(self, lens: Sequence[int]) -> list[int]:
        """The next tokens of each slot, in one row: one slot's after the other's. It changes nothing.

        Args:
            lens: how many of each of the B slots.
        """
        raise NotImplementedError("Week 3 Day 6 Task 4: A mixed step")

    def advance(self, lens: Sequence[int]) -> None:
        """Note that so many tokens of each slot were issued: ``position`` moves, the pages' lengths don't."""
        raise NotImplementedError("Week 3 Day 6 Task 4: A mixed step")

    def accept(self, slot: int, logits: Tensor) -> None:
        """Let the request in a slot choose its next token from its logits [V]."""
        raise NotImplementedError("Week 3 Day 6 Task 4: A mixed step")

    def get(self, mask: Sequence[bool]) -> list[list[int]]:
        """The output so far of the marked slots, in their order: what comes after the prompt; [] of an idle slot."""
        raise NotImplementedError("Week 3 Day 6 Task 1: In and out")

    def release(self, mask: Sequence[bool]) -> None:
        """Make the marked slots idle, and give their pages back. An idle slot may be marked, too.

        Raises:
            ValueError: there is not a mark for each of the B slots; nothing has changed.
        """
        raise NotImplementedError("Week 3 Day 6 Task 1: In and out")
