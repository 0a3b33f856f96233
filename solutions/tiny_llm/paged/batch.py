"""Continuous batching on pages: a request has all the pages that it may need before it begins (Day 3.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from tiny_llm.engine_core import EngineCore, Step
from tiny_llm.paged.allocator import OutOfPages, PageAllocator
from tiny_llm.paged.limits import most_tokens, page_refusal, unknown_token
from tiny_llm.paged.model_runner import ModelRunner
from tiny_llm.paged.running import Running
from tiny_llm.paged.sequence import PagedSequence
from tiny_llm.paged.tables import tables_of
from tiny_llm.request import Request


class PagedBatch(EngineCore):
    """Requests that run together on the pages of one pool, first come, first served.

    A request begins when the pages for the longest that it may become are free, and takes them all. So a request that
    runs always comes to its end. A step holds all decodes, and a chunk of one prompt.
    """

    def __init__(
        self, runner: ModelRunner, allocator: PageAllocator, max_running: int = 16, chunk_size: int = 128
    ) -> None:
        """Start without requests.

        Args:
            runner: the model and its pool.
            allocator: hands out the pool's pages; others may use it, too.
            max_running: how many requests run together at most.
            chunk_size: how many tokens of a prompt are computed in a step at most.

        Raises:
            ValueError: ``max_running`` or ``chunk_size`` is below 1.
        """
        if max_running < 1 or chunk_size < 1:
            raise ValueError(f"{max_running} requests and chunks of {chunk_size}: both must be at least 1")
        self.runner = runner
        self.allocator = allocator
        self.page_size = runner.pool.page_size
        self.max_positions = runner.model.config.max_positions
        self.vocab_size = runner.model.embedding.weight.shape[0]
        self.num_seats = max_running
        self.chunk_size = chunk_size
        self.token_budget = max_running - 1 + chunk_size
        self.waiting: deque[Request] = deque()  # pushed, but without pages
        self.running: list[Running] = []  # in the order in which they came

    @property
    def idle(self) -> int:
        """How many requests may be pushed now."""
        return self.num_seats - len(self.requests)

    @property
    def requests(self) -> list[Request]:
        """The requests that run, then those that wait."""
        return [each.request for each in self.running] + list(self.waiting)

    def refusal(self, request: Request) -> str | None:
        """Why a request can't ever run here, or None: as :func:`page_refusal` says for the allocator's pages.

        A prompt with a token that the model doesn't have can't run either (:func:`unknown_token`).
        """
        reason = page_refusal(request, self.max_positions, self.page_size, self.allocator.num_pages - 1)
        return reason or unknown_token(request, self.vocab_size)

    def push(self, request: Request) -> None:
        """Let a request wait behind all others; it begins in a later step.

        Raises:
            ValueError: as :meth:`EngineCore.push` says.
        """
        self.require_entry(request)
        self.waiting.append(request)

    def admit(self) -> None:
        """Let waiting requests begin, the first one first, while all the pages that each may need are free.

        A request that has to wait is not overtaken.

        Raises:
            OutOfPages: the first waiting request lacks pages, and no request runs here that could make room for it.
        """
        while self.waiting:
            sequence = PagedSequence(self.allocator, self.page_size)
            try:
                sequence.reserve(most_tokens(self.waiting[0], self.max_positions))
            except OutOfPages:
                if not self.running:
                    raise
                return
            self.running.append(Running(self.waiting.popleft(), sequence))

    def plan(self) -> list[tuple[Running, int]]:
        """Which requests bring how many tokens to the next step.

        First all requests that decode, in the order in which they came; then the first of the others, with a chunk.
        It changes nothing.
        """
        decodes = [(each, 1) for each in self.running if each.decoding]
        prompts = [(each, min(each.due, self.chunk_size)) for each in self.running if not each.decoding]
        return decodes + prompts[:1]

    def step(self) -> Step:
        """Admit, plan, run the model once, sample, and let the requests go that are finished.

        Returns:
            the requests of the plan, in its order, and the requests that have finished, in the order in which they
            came. Without any request both are empty, and the model was not run.

        Raises:
            OutOfPages: as :meth:`admit` says.
        """
        self.admit()
        plan = self.plan()
        if not plan:
            return Step([], [])
        took_part = [each for each, _ in plan]
        sequences = [each.sequence for each in took_part]
        tokens = [token for each, count in plan for token in each.next_ids(count)]
        hidden = self.runner.run(sequences, tables_of(sequences), tokens, [count for _, count in plan])
        self.runner.sample(hidden, took_part)
        finished = [each.request for each in self.running if each.request.finished(self.max_positions)]
        self.abort(finished)  # a finished request leaves in the same way
        return Step([(each.request, count) for each, count in plan], finished)

    def abort(self, requests: Collection[Request]) -> None:
        """Let some requests leave, running or waiting, and give their pages back; the others keep their order."""
        for each in self.running:
            if each.request in requests:
                each.sequence.release()
        self.running = [each for each in self.running if each.request not in requests]
        self.waiting = deque(request for request in self.waiting if request not in requests)
