"""One prompt on its way through the engine, with all of its answers (Day 4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import Future
from queue import SimpleQueue

from tiny_llm.engine.completion import Completion
from tiny_llm.engine.output import Delta, RequestOutput


class Generation:
    """The answers to one prompt while they grow, and the futures that end them."""

    def __init__(self, prompt_tokens: int) -> None:
        """Start without answers (given code).

        Args:
            prompt_tokens: how many tokens the prompt has, documents included.
        """
        self.prompt_tokens = prompt_tokens
        self.completions: list[Completion] = []
        self.futures: list[Future[list[int]]] = []

    def cancel(self) -> None:
        """Give up the answers that aren't complete: their seats and pages are free after the step that is running.

        It may be called at any time, from any thread, and again.
        """
        for future in self.futures:
            future.cancel()

    @property
    def cached_tokens(self) -> int:
        """How many tokens of the prompt had been computed before the request came.

        Of several answers, the one that has computed most counts: what the others find, it has computed for them.
        After a preemption more may be computed than the prompt has; then it is 0.
        """
        return max(0, self.prompt_tokens - max(each.computed for each in self.completions))

    def wait(self) -> RequestOutput:
        """Wait for one answer after the other: until its future is settled, then until it has ``ended``.

        Raises:
            the error of the first of the answers, in their order, that has failed; the CancelledError of
            ``concurrent.futures`` if it was cancelled. Later answers are not waited for.
        """
        for completion, future in zip(self.completions, self.futures, strict=True):
            future.result()
            completion.ended.result()
        return self.output()

    async def wait_async(self) -> RequestOutput:
        """The same without blocking the event loop; what comes through is what fails first.

        However this coroutine ends, also when it is cancelled, the answers that aren't complete are cancelled.
        """
        try:
            await asyncio.gather(*map(asyncio.wrap_future, self.futures))
            await asyncio.gather(*(asyncio.wrap_future(each.ended) for each in self.completions))
        finally:
            self.cancel()
        return self.output()

    def output(self) -> RequestOutput:
        """The answers, when all are complete (given code)."""
        outputs = [each.output() for each in self.completions]
        return RequestOutput(self.prompt_tokens, self.cached_tokens, outputs)

    def deltas(self, queue: SimpleQueue[Delta]) -> Iterator[Delta]:
        """The deltas of all answers, in the order in which they come, until each answer has ended.

        However the iteration ends, the answers that aren't complete are cancelled.

        Args:
            queue: where the deltas arrive.

        Raises:
            whatever an answer has failed of.
        """
        left = len(self.completions)
        try:
            while left:
                delta = queue.get()
                if delta.error is not None:
                    raise delta.error
                left -= delta.finish_reason is not None
                yield delta
        finally:
            self.cancel()

    async def deltas_async(self, queue: asyncio.Queue[Delta]) -> AsyncGenerator[Delta]:
        """The same without blocking the event loop.

        Args:
            queue: where the deltas arrive, put there by the event loop.

        Raises:
            whatever an answer has failed of.
        """
        left = len(self.completions)
        try:
            while left:
                delta = await queue.get()
                if delta.error is not None:
                    raise delta.error
                left -= delta.finish_reason is not None
                yield delta
        finally:
            self.cancel()
