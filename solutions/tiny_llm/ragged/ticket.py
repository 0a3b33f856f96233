"""One caller's request on its way through the batcher (Day 3.7)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from torch import Tensor

from tiny_llm.ragged.metrics import Metrics
from tiny_llm.request import Request

OnToken = Callable[[int], None]
"""Called with each new token, on the batcher's thread: it must be quick, and leave the work to others."""


class Ticket:
    """A request, and the future that its caller holds: it gets the output or an error.

    To cancel the request, its caller cancels the future.
    """

    def __init__(self, request: Request, on_token: OnToken, metrics: Metrics) -> None:
        """Start the clock.

        Args:
            request: what to generate. The ticket runs a copy of it, which samples with :meth:`choose`; what its
                caller does to the original later does no harm.
            on_token: told of each token.
            metrics: told when it came.
        """
        self.request = Request(request.prompt_ids, request.max_tokens, request.end_ids, self.choose)
        self.sample = request.sample
        self.on_token = on_token
        self.metrics = metrics
        self.future: Future[list[int]] = Future()
        self.error: Exception | None = None  # why it can't go on
        self.last = time.perf_counter()  # when it came; later, when its newest token did

    def choose(self, logits: Tensor, token_ids: Sequence[int]) -> int:
        """Choose a token by the caller's own way of sampling, note it in the metrics, and tell the caller.

        Both are the caller's code, which may fail while others share the step. So an error goes to ``error``, and
        nobody sees the token that is returned then.

        Args:
            logits: [V].
            token_ids: prompt and output so far.
        """
        try:
            token = self.sample(logits, token_ids)
            self.last = self.metrics.token(since=self.last, first=self.request.num_generated == 0)
            self.on_token(token)
        except Exception as error:
            self.error = error
            return 0
        return token

    @property
    def over(self) -> bool:
        """Whether it is of no use to go on: it failed, or nobody wants the answer any more."""
        return self.error is not None or self.future.cancelled()

    def settle(self) -> bool:
        """Give the future the error, if there is one, or else a copy of the output; once.

        Returns:
            False if the caller has cancelled it.
        """
        # From here on it can't be cancelled any more; without this, a cancel just now would make the next call fail.
        if not self.future.set_running_or_notify_cancel():
            return False
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.request.output)
        return True
