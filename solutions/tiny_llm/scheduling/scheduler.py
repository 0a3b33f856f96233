"""Which requests bring how many tokens to the next step, under a budget of tokens (Day 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tiny_llm.paged.allocator import OutOfPages
from tiny_llm.paged.limits import most_tokens
from tiny_llm.paged.places import pages_for
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.prefix.page_cache import BasePageCache
from tiny_llm.request import Request
from tiny_llm.scheduling.standing import Chunk, Standing


class Scheduler:
    """Plans steps: decodes first, then prompts in the order in which they came, until the budget is used up.

    A request waits until the pages for the longest that it may become are there, beyond those that the running
    requests may still need. So a request that runs always comes to its end. What the page cache knows of a prompt
    needs no pages, and is not computed.
    """

    def __init__(
        self,
        cache: BasePageCache,
        max_positions: int,
        num_seats: int = 16,
        token_budget: int = 256,
        chunk_size: int | None = None,
    ) -> None:
        """Start without requests.

        Args:
            cache: where pages come from.
            max_positions: how many positions prompt and output of a request together may use.
            num_seats: how many requests run together at most.
            token_budget: how many tokens all requests together bring to a step at most.
            chunk_size: how many tokens one request brings at most; None: as many as the budget allows.

        Raises:
            ValueError: ``num_seats``, ``token_budget`` or ``chunk_size`` is below 1.
        """
        chunk_size = token_budget if chunk_size is None else chunk_size
        if min(num_seats, token_budget, chunk_size) < 1:
            raise ValueError(
                f"{num_seats} seats, a budget of {token_budget} and chunks of {chunk_size} tokens: each must be at "
                "least 1"
            )
        self.cache = cache
        self.max_positions = max_positions
        self.num_seats = num_seats
        self.token_budget = token_budget
        self.chunk_size = chunk_size
        self.waiting: list[Standing] = []  # pushed, without pages, in the order in which they came
        self.running: list[Standing] = []  # those that have begun, in the order in which they came
        self.planned: list[Chunk] = []  # the step that is being planned, or runs
        self.begun: list[Standing] = []  # those that were waiting before this step
        self.had: dict[Standing, int] = {}  # tokens in the pool, before this step, of each that ran then
        self.preempted: list[Request] = []  # those that lost their pages in this step; none before Day 4.3
        self.left = 0  # what is left of the budget in the step that is being planned
        self.reused = 0  # tokens that the page cache has found, and that were not computed, in all steps
        self.pushed = 0  # how many requests were pushed so far: the rank of the next one

    @property
    def requests(self) -> list[Request]:
        """All requests, in the order in which they came."""
        return [each.request for each in sorted(self.running + self.waiting, key=lambda each: each.rank)]

    @property
    def num_requests(self) -> int:
        """How many requests there are."""
        return len(self.running) + len(self.waiting)

    def refusal(self, request: Request) -> str | None:
        """Why a request can't ever be planned, or None: here nothing is asked of it (given code)."""
        return None

    def push(self, request: Request) -> None:
        """Let a request wait behind all others (given code)."""
        sequence = PagedSequence(self.cache.allocator, self.cache.page_size)
        self.waiting.append(Standing(request, sequence, self.pushed, request.priority))
        self.pushed += 1

    def plan(self) -> list[Chunk]:
        """Choose what each request brings to the next step, and take the pages for it.

        First it notes in ``had`` what the requests that run have, for :meth:`undo`. Then it adds these, each as soon
        as :meth:`line` names it; then, with what is left of the budget, those that :meth:`admit` lets begin. A
        request brings at most one chunk.

        Returns:
            the step, in the order of planning: the model has to get the tokens in this order, since a request may
            read pages that one before it writes. Also while it is being made, it is in ``planned``.

        Raises:
            OutOfPages: there are requests, and none of them can bring a token: others hold the pages.
        """
        self.planned, self.begun, self.left = [], [], self.token_budget
        self.had = {each: each.sequence.length for each in self.running}
        for running in self.line():
            self.add(running)
        self.admit()
        if not self.planned and (self.running or self.waiting):
            raise OutOfPages(f"no request can go on: {self.cache.available} pages are available")
        return self.planned

    def line(self) -> Iterable[Standing]:
        """The requests that run, in the order of serving: the decodes, then the others, each in order of arrival."""
        return sorted(self.running, key=lambda each: not each.decoding)

    def add(self, running: Standing, found: int = 0) -> None:
        """Plan a chunk of a request: of the tokens that are due, as many as budget, chunk size and pages allow.

        Where nothing is left of the budget, nothing is done. Else it first takes from the page cache what is known
        of the request's tokens by now. For how many of the rest there are pages, :meth:`take_pages` says. A request
        for which there is no page has what it had before the step, and is not planned.

        Args:
            running: a request that runs, and is not in the step yet.
            found: how many tokens the cache has found for it in this step already.
        """
        if self.left == 0:
            return
        sequence, ids = running.sequence, running.request.token_ids
        had = sequence.length - found
        decode = running.decoding and not found  # not one that resumes, and lacks its last token only
        if not decode:  # a decode finds nothing: only its newest token is due
            found += self.cache.match(sequence, ids)
        count = self.take_pages(running, min(running.due, self.left, self.chunk_size))
        if count == 0:
            self.cache.release(sequence, had)
            return
        self.cache.publish(sequence, ids, sequence.length + count)
        self.planned.append(Chunk(running, count, had, found, decode))
        self.left -= count

    def take_pages(self, running: Standing, count: int) -> int:
        """Take the pages for some tokens of a request (given code: Day 4.3 has another way).

        Args:
            running: the request.
            count: how many tokens it is to bring.

        Returns:
            how many tokens it has pages for now: all of them, or 0 if pages are lacking. Then nothing was taken. It
            can happen only where something else uses the allocator, too: the scheduler keeps what it has promised.
        """
        try:
            self.cache.acquire(running.sequence, count)
        except OutOfPages:
            return 0
        return count

    def admit(self) -> None:
        """Let waiting requests begin, the first one first, while there are seats, budget and pages for them.

        A request begins when the pages for the longest that it may become are there, beyond what is promised to the
        requests that run. The pages that the cache finds for it are not lacking. A request that has to wait is not
        overtaken; it gives the pages that were found back.
        """
        promised = sum(self.promised(each) for each in self.running)
        while self.waiting and self.left and len(self.running) < self.num_seats:
            first = self.waiting[0]
            found = self.cache.match(first.sequence, first.request.token_ids)
            if promised + self.promised(first) > self.cache.available:
                self.cache.release(first.sequence)
                return
            self.begin(first, found)
            promised += self.promised(first)

    def begin(self, running: Standing, found: int) -> None:
        """Let a waiting request run, and plan its first chunk (given code).

        Args:
            running: the request.
            found: how many of its tokens the cache has found.
        """
        self.waiting.remove(running)
        self.running.append(running)
        self.begun.append(running)
        self.add(running, found)

    def promised(self, running: Standing) -> int:
        """How many more pages a request may come to need (given code)."""
        most = pages_for(most_tokens(running.request, self.max_positions), self.cache.page_size)
        return most - len(running.sequence.pages)

    def commit(self) -> None:
        """Note that the model has run on the step that was planned."""
        self.cache.commit()
        self.reused += sum(chunk.found for chunk in self.planned)
        self.planned, self.begun, self.had = [], [], {}

    def undo(self) -> None:
        """Forget the step that was planned, in part or as a whole: the model has not run on it, or has failed.

        Every request has what it had before, in pages, tokens and the order of the line. First all are released:
        those in ``had`` to what they had; then those that have begun, and those that wait, to nothing. (A request
        that waits may have matched when planning failed. One that has lost its pages in this step, Day 4.3, is in
        ``had``, too, and waits without any.) Then the cache withdraws what was published. Those that have begun wait
        again, before all others. At the end nothing is planned, nothing has begun, and ``had`` is empty. Pages that
        were evicted stay evicted.
        """
        for each, had in self.had.items():
            self.cache.release(each.sequence, had)
        for each in self.begun + self.waiting:  # last: one that has lost its pages in this step waits, too
            self.cache.release(each.sequence)
        self.cache.withdraw()
        self.running = [each for each in self.running if each not in self.begun]
        self.waiting = self.begun + self.waiting
        self.planned, self.begun, self.had = [], [], {}

    def remove(self, requests: Collection[Request]) -> None:
        """Let some requests go, between two steps, and release their pages; they keep their tokens.

        Requests that are not here are passed over.
        """
        for each in self.running:
            if each.request in requests:
                self.cache.release(each.sequence)
        self.running = [each for each in self.running if each.request not in requests]
        self.waiting = [each for each in self.waiting if each.request not in requests]
