"""The answers to one HTTP request while they grow (Day 4.6, given code)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from starlette.types import Receive

from tiny_llm.engine.generation import Generation
from tiny_llm.engine.llm import LLM
from tiny_llm.engine.output import Delta, RequestOutput
from tiny_llm.engine.params import SamplingParams
from tiny_llm.engine.prompts import Encoded

T = TypeVar("T")


class Answering:
    """The generations of one HTTP request, one for each of its prompts. Made and used on one event loop."""

    def __init__(self, llm: LLM, prompts: Sequence[Encoded], params: SamplingParams, name: str = "") -> None:
        """Submit all prompts.

        Args:
            llm: the engine.
            prompts: token ids.
            params: the settings.
            name: what the answers are called, for those who watch the engine.

        Raises:
            what :meth:`LLM.begin` raises; then none of them goes on.
        """
        self.generations: list[Generation] = []
        self._queue: asyncio.Queue[tuple[int, Delta]] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._name = name
        try:
            for number, prompt in enumerate(prompts):
                self.generations.append(self._begin(llm, number, prompt, params))
        except BaseException:
            self.cancel()
            raise

    def _begin(self, llm: LLM, number: int, prompt: Encoded, params: SamplingParams) -> Generation:
        def deliver(delta: Delta) -> None:
            # Called on the batcher's thread. Only the event loop may touch the queue, so it is asked to.
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (number, delta))

        generation = llm.begin(prompt, params, deliver)
        for completion in generation.completions:
            completion.name = self._name
        return generation

    def cancel(self) -> None:
        """Give up the answers that aren't complete."""
        for generation in self.generations:
            generation.cancel()

    async def outputs(self) -> list[RequestOutput]:
        """Wait for all answers. However it ends, those that aren't complete are cancelled.

        Raises:
            whatever the first answer that has failed has failed of.
        """
        try:
            await asyncio.gather(*(each.wait_async() for each in self.generations))
        finally:
            self.cancel()
        return [each.output() for each in self.generations]

    async def deltas(self) -> AsyncGenerator[tuple[int, Delta]]:
        """The deltas of all answers as they come, each with its prompt's number, counted from 0.

        However the iteration ends, the answers that aren't complete are cancelled.

        Raises:
            whatever an answer has failed of.
        """
        left = sum(len(each.completions) for each in self.generations)
        try:
            while left:
                number, delta = await self._queue.get()
                if delta.error is not None:
                    raise delta.error
                left -= delta.finish_reason is not None
                yield number, delta
        finally:
            self.cancel()


class ClientGone(Exception):
    """Nothing that is sent now will be read."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do some work for a client; cancel it as soon as the client goes away.

    Args:
        receive: of the ASGI request, whose body was read.
        work: what to do.

    Raises:
        ClientGone: the client has gone away. What the work raises comes through, too.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        for each in (task, watch):
            each.cancel()
        # The work has cleaned up before this returns; what it raises meanwhile has no reader.
        for each in (task, watch):
            with suppress(asyncio.CancelledError, Exception):
                await each


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
