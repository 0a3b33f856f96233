"""An engine core that samples a whole step at once (Day 4.6)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tiny_llm.documents.batch import DocumentBatch
from tiny_llm.documents.join import Branch, BranchRequest
from tiny_llm.engine.request import Answered
from tiny_llm.engine.step_sampler import Row, choose_step
from tiny_llm.request import Request
from tiny_llm.scheduling.standing import Chunk


class ServedBatch(DocumentBatch):
    """Day 4.5's engine; the requests of :class:`LLM` are sampled together."""

    def sample(self, plan: Sequence[Chunk], hidden: Tensor) -> None:
        """Let each request that has no token due accept its next one, from one run of the head.

        The head runs on the states of these requests alone; where there are none, it doesn't run. What the step
        computed is noted before all else (:meth:`count`).

        For the requests that are :class:`Answered`, all tokens are chosen by one call of :func:`choose_step`, before
        any of them is accepted; any other request chooses its own. Then each request accepts its token, in the order
        of the plan. An Exception that a request raises there becomes its ``error``, as on Day 4.2, and the requests
        behind it go on. Branches never get a token.

        Args:
            plan: B chunks, which the model has run on.
            hidden: [B, E], what :meth:`run` returned.
        """
        self.count(plan)
        places = [place for place, chunk in enumerate(plan) if self.samples(chunk)]
        if not places:
            return
        requests = [plan[place].running.request for place in places]
        logits = self.runner.model.logits(hidden[places])
        answered = [(row, each) for row, each in enumerate(requests) if isinstance(each, Answered)]
        rows = [Row(each.completion.sampler, each.token_ids) for _, each in answered]
        mine = logits if len(rows) == len(requests) else logits[[row for row, _ in answered]]
        for row, token in zip(rows, choose_step(mine, rows), strict=True):
            row.sampler.chosen = token
        for request, row in zip(requests, logits, strict=True):
            try:
                request.accept(row)
            except Exception as error:
                request.error = f"{type(error).__name__}: {error}"

    def samples(self, chunk: Chunk) -> bool:
        """Whether a chunk brings its request to its next token (given code)."""
        return chunk.running.due == 0 and not isinstance(chunk.running, Branch)

    def count(self, plan: Sequence[Chunk]) -> None:
        """Note how many tokens of their prompts were computed for requests without output (given code)."""
        for chunk in plan:
            request: Request = chunk.running.request
            request = request.owner if isinstance(request, BranchRequest) else request
            if isinstance(request, Answered) and request.num_generated == 0:
                request.completion.computed += chunk.count
