"""Levels and clients: which of the requests that wait is next (Day 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tiny_llm.prefix.page_cache import BasePageCache
from tiny_llm.request import Request
from tiny_llm.scheduling.fairness import VirtualTokens
from tiny_llm.scheduling.scheduler import Scheduler
from tiny_llm.scheduling.standing import Standing

HIGHEST = 3
"""The highest priority; the lowest is 0."""


class LeveledScheduler(Scheduler):
    """A scheduler whose requests have levels, and whose clients get equal shares.

    Of two requests the one with the higher level stands above, and of the same level the one that came first. A
    level is at first the request's priority; it only rises, and ends at the highest.
    """

    def __init__(
        self,
        cache: BasePageCache,
        max_positions: int,
        num_seats: int = 256,
        token_budget: int = 256,
        chunk_size: int | None = None,
        patience: int = 64,
    ) -> None:
        """Start without requests.

        Args:
            cache: where pages come from.
            max_positions: how many positions prompt and output of a request together may use.
            num_seats: how many requests run together at most.
            token_budget: how many tokens all requests together bring to a step at most.
            chunk_size: how many tokens one request brings at most; None: as many as the budget allows.
            patience: how many steps a request waits until its level rises by one.

        Raises:
            ValueError: ``num_seats``, ``token_budget``, ``chunk_size`` or ``patience`` is below 1.
        """
        super().__init__(cache, max_positions, num_seats, token_budget, chunk_size)
        if patience < 1:
            raise ValueError(f"a patience of {patience} steps: it must be at least 1")
        self.patience = patience
        self.fairness = VirtualTokens()
        self.clients: Counter[str] = Counter()  # how many requests each client has here
        # What the requests that have begun in this step took of its budget, by client. Those that ran before the
        # step aren't counted.
        self.got: Counter[str] = Counter()
        self.preemptions = 0  # so far
        # Whether a request that runs lacked a page in this step, and preempted another one.
        self.short = False

    def refusal(self, request: Request) -> str | None:
        """Why a request can't ever be planned, or None (given code).

        Its priority must be an int from 0 to HIGHEST (a bool, which Python counts as an int, is none); its client
        must be a string.
        """
        priority, client = request.priority, request.client
        if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= HIGHEST:
            return f"the priority is {priority!r}; it must be a whole number from 0 to {HIGHEST}"
        if not isinstance(client, str):
            return f"the client is {client!r}; it must be a string"
        return None

    def push(self, request: Request) -> None:
        """Let a request wait; its client is here from now on (given code)."""
        self.fairness.arrive(request.client, self.clients)
        self.clients[request.client] += 1
        super().push(request)

    def age(self) -> None:
        """Note that a step has passed: a request rises by a level each time that it has waited ``patience`` steps.

        Of the requests of one client that wait at the same level, only the one that came first ages: the others wait
        for their own client. Otherwise a client with many requests would fill the highest level with them, and shut
        the others out.
        """
        raise NotImplementedError("Week 4 Day 3 Task 1: Levels and victims")

    def turn(self, waiting: Standing) -> tuple[int, bool, int, int]:
        """When a waiting request's turn comes: the lowest of these is next.

        Higher levels first; in a level first those that resume, then those of the client that was served least, then
        those that came first. What a client's requests that begin in this step have taken of the budget so far
        (``got``) counts as service, too.
        """
        raise NotImplementedError("Week 4 Day 3 Task 3: Begin and resume")

    def commit(self) -> None:
        """Note that the model has run on the step that was planned (given code).

        The clients are charged for it, and the requests that wait have waited one step more.
        """
        for chunk in self.planned:
            self.charge(chunk.running, chunk.count)
        self.age()
        super().commit()

    def charge(self, running: Standing, count: int) -> None:
        """Charge a request's client for the tokens that were computed for the first time.

        What was found in the page cache costs nothing; nor does what is computed again after a preemption.

        Args:
            running: the request, after the step.
            count: how many of its last tokens were computed in it.
        """
        raise NotImplementedError("Week 4 Day 3 Task 4: Fair to clients")

    def remove(self, requests: Collection[Request]) -> None:
        """Let some requests go, between two steps, and release their pages (given code).

        A client without any request here leaves, too.
        """
        gone = [each.request.client for each in self.running + self.waiting if each.request in requests]
        super().remove(requests)
        for client in gone:
            self.clients[client] -= 1
            if not self.clients[client]:
                del self.clients[client]
                self.fairness.depart(client, self.clients)
