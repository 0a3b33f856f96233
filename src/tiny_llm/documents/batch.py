"""An engine whose requests may be questions about documents (Day 4.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiny_llm.arrays import Tensor, integers
from tiny_llm.documents.join import Branch, BranchRequest
from tiny_llm.documents.request import DocumentRequest
from tiny_llm.documents.runner import DocumentRunner
from tiny_llm.documents.scheduler import DocumentScheduler
from tiny_llm.engine_core import Step
from tiny_llm.paged.limits import most_tokens, unknown_token
from tiny_llm.paged.places import pages_for
from tiny_llm.request import Request
from tiny_llm.scheduling.batch import ExtendBatch
from tiny_llm.scheduling.standing import Chunk


class DocumentBatch(ExtendBatch):
    """Runs ordinary requests and document requests together.

    Source: it is the course's own; what comes nearest is PromptCache (Gim et al. 2024, arXiv 2311.04934).
    """

    runner: DocumentRunner

    def __init__(
        self, runner: DocumentRunner, scheduler: DocumentScheduler, max_requests: int = 1024
    ) -> None:
        """Start without requests; arguments and errors as for :class:`ExtendBatch` (given code)."""
        super().__init__(runner, scheduler, max_requests=max_requests)

    def refusal(self, request: Request) -> str | None:
        """Why a request can't ever run here, or None.

        A document request can't if one of these holds, and the first that does is the reason: its question has no
        token, or ends too late (:meth:`DocumentRequest.refusal`); the system prompt or a document has a token that
        the model doesn't have, or the question has; the scheduler refuses it (its priority, its client); the pool has
        too few pages for all its branches, its question and its output if no page is shared.
        """
        raise NotImplementedError("Week 4 Day 5 Task 6: The engine")

    def _page_refusal(self, request: DocumentRequest) -> str | None:
        """Why the pool is too small for a document request, or None (given code)."""
        page_size, most = self.scheduler.cache.page_size, self.allocator.num_pages - 1
        system = len(request.segments.system)
        lengths = [system + len(document) for _, document in request.documents] or [system]
        lengths.append(most_tokens(request, self.max_positions - request.start))
        needed = sum(pages_for(length, page_size) for length in lengths)
        if needed <= most:
            return None
        return (
            f"{len(request.documents)} documents, question and output need up to {needed} pages of {page_size} "
            f"tokens; there are {most}"
        )

    def step(self) -> Step:
        """Plan a step, run it, sample, and let the requests go that are finished, as :meth:`ExtendBatch.step` does.

        Returns:
            the requests of the plan. A document request is there once, with the tokens of all its branches and of its
            question; it can take part without its question.
        """
        raise NotImplementedError("Week 4 Day 5 Task 6: The engine")

    def _run(self, plan: Sequence[Chunk]) -> Tensor:
        """Run the model once (given code)."""
        return self.runner.run_chunks(plan, self.tables.table([chunk.running.sequence for chunk in plan]))

    def sample(self, plan: Sequence[Chunk], hidden: Tensor) -> None:
        """Let each request that has no token due accept its next one; branches never do.

        Args:
            plan: B chunks, which the model has run on.
            hidden: [B, E], what :meth:`run` returned.
        """
        raise NotImplementedError("Week 4 Day 5 Task 6: The engine")
