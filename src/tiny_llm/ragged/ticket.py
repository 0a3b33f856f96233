"""One caller's request on its way through the batcher (Day 3.7)."""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import Callable, Sequence

from tiny_llm.arrays import Tensor
from tiny_llm.ragged.answer import Answer
from tiny_llm.ragged.metrics import Metrics
from tiny_llm.request import Request

OnToken = Callable[[int], None]
"""Called with each new token, on the batcher's thread, while every other request waits: it must be quick."""


class Ticket:
    """A copy of a request, and the future that its caller holds: the future gets the output or an error.

    To cancel the request, its caller cancels the future.
    """

    def __init__(self, request: Request, on_token: OnToken, metrics: Metrics) -> None:
        """Start the clock.

        Args:
            request: what to generate. The ticket makes a copy, which begins with the prompt alone and samples with
                :meth:`choose`. The engine runs the copy; the caller may do what it likes with its own.
            on_token: called with each token.
            metrics: notes when each token came.
        """
        self.request = request.renewed(self.choose)
        self.sample = request.sample
        self.on_token = on_token
        self.metrics = metrics
        self.future = Answer()
        self.error: BaseException | None = None  # why the request has failed
        self.last = time.perf_counter()  # when the request came; later, when its newest token came

    def choose(self, logits: Tensor, token_ids: Sequence[int]) -> int:
        """Choose a token by the caller's own way of sampling, note it in the metrics, and call ``on_token`` with it.

        Sampler and ``on_token`` are the caller's code. They may fail in a step that other requests share. So neither
        an Exception nor asyncio's CancelledError, which is none, gets out: it goes to ``error``, as it is, and the
        request ends after the step. A token that is not an int from 0 to V − 1 is a ValueError, which says what came:
        the model's next run would fail on it, for all requests.

        Args:
            logits: [V].
            token_ids: prompt and output so far.

        Returns:
            the token; after an error some int from 0 to V − 1, which is no part of any answer.
        """
        raise NotImplementedError("Week 3 Day 7 Task 1: A ticket")

    @property
    def over(self) -> bool:
        """Whether the request is to leave before its output is complete: it has failed, or was cancelled."""
        return self.error is not None or self.future.cancelled()

    def settle(self) -> bool:
        """Give the future the error, if there is one, or else the output. Called once.

        Returns:
            False if the caller has cancelled the future: then it gets neither.
        """
        raise NotImplementedError("Week 3 Day 7 Task 1: A ticket")
