"""Pages are taken when tokens come; when none is left, a request loses its own, and resumes later (Day 4.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from tiny_llm.prefix.page_cache import BasePageCache
from tiny_llm.request import Request
from tiny_llm.scheduling.fairness import VirtualTokens
from tiny_llm.scheduling.scheduler import Scheduler
from tiny_llm.scheduling.standing import Chunk, Standing

HIGHEST = 3
"""The highest priority; the lowest is 0."""


class PreemptiveScheduler(Scheduler):
    """A scheduler that promises no pages: a request that needs one takes it from a request that stands below it.

    Of two requests the one with the higher level stands above, and of the same level the one that came first. A
    level only rises, and ends at the highest: so two requests can't take the pages from each other for ever, and the
    request that stands above all others always goes on.
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
        self.preemptions = 0  # so far

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
        raise NotImplementedError("Week 4 Day 3 Task 3: Begin and resume")

    def plan(self) -> list[Chunk]:
        """Choose what each request brings to the next step, as :meth:`Scheduler.plan` does (given code)."""
        self.preempted = []
        return super().plan()

    def line(self) -> Iterator[Standing]:
        """The requests that run, in the order of serving; one that is preempted meanwhile is left out.

        Higher levels first; in a level first the decodes, then the others; each in the order in which they came.
        """
        raise NotImplementedError("Week 4 Day 3 Task 2: Preempt")

    def take_pages(self, running: Standing, count: int) -> int:
        """Take the pages for some tokens of a request, or for as many of them as there are pages.

        Only where there is no page even for one token, another request is preempted. One is enough: releasing a
        victim frees a page, and that is room for a token at least.

        Args:
            running: the request.
            count: how many tokens it is to bring.

        Returns:
            how many tokens it has pages for now; 0 if there are none, and no request to take them from.
        """
        raise NotImplementedError("Week 4 Day 3 Task 2: Preempt")

    def room(self, running: Standing) -> int:
        """For how many more tokens of a request there are pages: those that it has, and those that are available."""
        raise NotImplementedError("Week 4 Day 3 Task 2: Preempt")

    def victim(self, running: Standing) -> Standing | None:
        """Which request is to lose its pages, so that another one can go on. It changes nothing.

        The one that stands lowest: of the lowest level the one that came last. It must stand below the request that
        goes on, which can't be its own victim, and not be in this step already (``planned`` lists the chunks of the
        step); and releasing it must free a page.

        Args:
            running: the request that goes on.

        Returns:
            the victim, or None if there is none.
        """
        raise NotImplementedError("Week 4 Day 3 Task 1: Which request loses its pages")

    def preempt(self, victim: Standing) -> None:
        """Take all pages from a request that runs: it waits again, and will resume where the page cache still can.

        Its full pages are published already. Its tokens, its sampler, ``level``, ``rank``, ``waited`` and ``charged``
        stay as they are. ``preempted`` lists its request, ``preemptions`` counts it, and it ``resumes`` from now on.
        It stays preempted if the step fails.
        """
        raise NotImplementedError("Week 4 Day 3 Task 2: Preempt")

    def admit(self) -> None:
        """Let waiting requests begin or resume, while there are seats, budget and pages, and none was preempted now.

        Which one is next, :meth:`turn` says. It begins when there are pages for all its tokens, or when a request of
        a lower level can be preempted for it: one that can't go on in this step, since those that go on keep their
        pages. A request that has to wait is not overtaken, and gives back what was found for it. One that resumes
        is still marked so when it runs: if the step fails, it waits in the same place.
        """
        raise NotImplementedError("Week 4 Day 3 Task 3: Begin and resume")

    def may_begin(self, waiting: Standing) -> bool:
        """Whether there are pages for all that is due, or a request of a lower level that can be preempted."""
        raise NotImplementedError("Week 4 Day 3 Task 3: Begin and resume")

    def turn(self, waiting: Standing, begun: Counter[str]) -> tuple[int, bool, int, int]:
        """When a waiting request's turn comes: the lowest of these is next.

        Higher levels first; in a level first those that resume, then those of the client that was served least, then
        those that came first.

        Args:
            waiting: the request.
            begun: how many tokens each client's requests that begin in this step have taken of the budget so far.
                Those of requests that ran before the step aren't among them.
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
