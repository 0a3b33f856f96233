"""An engine whose steps extend many requests at once, on pages that they share (Day 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tiny_llm.arrays import Tensor, concatenate
from tiny_llm.engine_core import EngineCore, Step
from tiny_llm.paged.limits import page_refusal, unknown_token
from tiny_llm.paged.model_runner import ModelRunner
from tiny_llm.paged.places import pages_for
from tiny_llm.request import Request
from tiny_llm.scheduling.block_tables import BlockTables
from tiny_llm.scheduling.scheduler import Scheduler
from tiny_llm.scheduling.standing import Chunk


class ExtendBatch(EngineCore):
    """Runs what a scheduler plans: prompts, parts of prompts and decodes in one run of the model.

    Requests may be pushed while others run in all seats: the scheduler chooses among those that wait.
    """

    def __init__(
        self, runner: ModelRunner, scheduler: Scheduler, separate: bool = False, max_requests: int = 1024
    ) -> None:
        """Start without requests.

        Args:
            runner: the model and its pool.
            scheduler: plans the steps; its pages are those of the pool.
            separate: whether a step runs the model twice, on the decodes and on the others. It is there to measure
                what one run gains.
            max_requests: how many requests may wait and run together.

        Raises:
            ValueError: the scheduler's pages are not those of the pool: their size or their number differs; or
                ``max_requests`` is below 1.
        """
        cache, pool = scheduler.cache, runner.pool
        theirs = f"{cache.allocator.num_pages} pages of {cache.page_size} tokens"
        ours = f"{pool.num_pages} of {pool.page_size}"
        if (cache.allocator.num_pages, cache.page_size) != (pool.num_pages, pool.page_size):
            raise ValueError(f"the scheduler hands out {theirs}, and the pool has {ours}")
        if max_requests < 1:
            raise ValueError(f"room for {max_requests} requests: there must be room for at least 1")
        self.runner = runner
        self.scheduler = scheduler
        self.separate = separate
        self.max_requests = max_requests
        self.allocator = cache.allocator
        self.max_positions = scheduler.max_positions
        self.vocab_size = runner.model.embedding.weight.shape[0]
        self.num_seats = scheduler.num_seats
        self.token_budget = scheduler.token_budget
        self.tables = BlockTables(scheduler.num_seats, pages_for(self.max_positions, cache.page_size))

    @property
    def idle(self) -> int:
        """How many requests may be pushed now; they need not find a seat at once."""
        return self.max_requests - self.scheduler.num_requests

    @property
    def requests(self) -> list[Request]:
        """The requests that wait and those that run, in the order in which they came."""
        return self.scheduler.requests

    def refusal(self, request: Request) -> str | None:
        """Why a request can't ever run here, or None: as :func:`page_refusal` says for all pages of the pool.

        A prompt with a token that the model doesn't have can't run either (:func:`unknown_token`), nor can one that
        the scheduler refuses.
        """
        page_size, most = self.scheduler.cache.page_size, self.allocator.num_pages - 1
        return (
            page_refusal(request, self.max_positions, page_size, most)
            or unknown_token(request, self.vocab_size)
            or self.scheduler.refusal(request)
        )

    def push(self, request: Request) -> None:
        """Let a request wait; the scheduler decides when it begins. An ``error`` of an earlier time is forgotten.

        Raises:
            ValueError: as :meth:`EngineCore.push` says.
        """
        self.require_entry(request)
        request.error = None
        self.scheduler.push(request)

    def step(self) -> Step:
        """Plan a step, run the model on it, sample, and let the requests go that are finished.

        If planning or the model fails, everything is as it was before the step, apart from pages that were evicted,
        and requests that were preempted (Day 4.3). Once the model has run, nothing is undone, not even where Ctrl-C
        comes in a sampler.
        If the sampler of a request fails with an Exception, this request alone ends: its ``error`` is the exception's
        name and message, and its output is what it had.

        Returns:
            the requests of the plan, in its order, and those of them that have finished, or failed.

        Raises:
            OutOfPages: as :meth:`Scheduler.plan` says.
        """
        try:
            plan = self.order(self.scheduler.plan())
            hidden = self.run(plan) if plan else None
        except BaseException:
            self.scheduler.undo()
            raise
        self.scheduler.commit()
        if hidden is None:
            return Step([], [])
        self.sample(plan, hidden)
        requests = [chunk.running.request for chunk in plan]
        finished = [each for each in requests if each.error or each.finished(self.max_positions)]
        self.scheduler.remove(finished)
        return Step(
            [(chunk.running.request, chunk.count) for chunk in plan], finished, self.scheduler.preempted
        )

    def order(self, plan: Sequence[Chunk]) -> list[Chunk]:
        """The chunks in the order in which they are run: as they were planned, or the decodes first (given code).

        A decode never reads what another chunk of its step writes.
        """
        return sorted(plan, key=lambda chunk: self.separate and not chunk.decode)

    def run(self, plan: Sequence[Chunk]) -> Tensor:
        """Run the model on the tokens of a plan: once, or on the decodes and then on the others (given code).

        Returns:
            [B, E]: the state of the last token of each chunk, in the order of the plan.
        """
        if not self.separate:
            return self._run(plan)
        parts = [[chunk for chunk in plan if chunk.decode is decode] for decode in (True, False)]
        return concatenate([self._run(part) for part in parts if part])

    def _run(self, plan: Sequence[Chunk]) -> Tensor:
        """Run the model once (given code)."""
        sequences = [chunk.running.sequence for chunk in plan]
        tokens = [token for chunk in plan for token in chunk.running.next_ids(chunk.count)]
        return self.runner.run(
            sequences, self.tables.table(sequences), tokens, [chunk.count for chunk in plan]
        )

    def sample(self, plan: Sequence[Chunk], hidden: Tensor) -> None:
        """Let each request that has no token due accept its next one, from one run of the head.

        Args:
            plan: B chunks, which the model has run on.
            hidden: [B, E], what :meth:`run` returned.
        """
        complete = [row for row, chunk in enumerate(plan) if chunk.running.due == 0]
        if not complete:
            return
        for row, logits in zip(complete, self.runner.model.logits(hidden[complete]), strict=True):
            request = plan[row].running.request
            try:
                request.accept(logits)
            except Exception as error:
                request.error = f"{type(error).__name__}: {error}"

    def abort(self, requests: Collection[Request]) -> None:
        """Let some requests leave, waiting or running, and release their pages.

        They keep the tokens that they have: a request may be pushed again.
        """
        self.scheduler.remove(requests)
