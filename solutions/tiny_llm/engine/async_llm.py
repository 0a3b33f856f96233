"""The same engine for coroutines (Day 4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from tiny_llm.engine.llm import GREEDY, LLM
from tiny_llm.engine.output import Delta, RequestOutput
from tiny_llm.engine.params import SamplingParams
from tiny_llm.engine.prompts import Encoded, Prompt
from tiny_llm.tokenizer import Message


class AsyncLLM:
    """An :class:`LLM`, seen from an event loop: nothing here blocks it.

    A coroutine that is cancelled, and an iteration that is closed, cancel their answers. Long texts become tokens on
    another thread.
    """

    def __init__(self, llm: LLM) -> None:
        """Share an engine with its other callers (given code)."""
        self.llm = llm

    async def generate(self, prompt: Prompt, params: SamplingParams = GREEDY) -> RequestOutput:
        """Continue a prompt, and wait for its answers (given code)."""
        return await self.run(await asyncio.to_thread(self.llm.reader.read, prompt, params.documents), params)

    async def chat(self, messages: Sequence[Message], params: SamplingParams = GREEDY) -> RequestOutput:
        """Answer a conversation, and wait for its answers (given code)."""
        encoded = await asyncio.to_thread(self.llm.reader.read_chat, messages, params.documents)
        return await self.run(encoded, params)

    async def stream(self, prompt: Prompt, params: SamplingParams = GREEDY) -> AsyncGenerator[Delta]:
        """Continue a prompt, and give each delta as soon as it is known (given code)."""
        encoded = await asyncio.to_thread(self.llm.reader.read, prompt, params.documents)
        async with aclosing(self.deltas(encoded, params)) as deltas:
            async for delta in deltas:
                yield delta

    async def stream_chat(
        self, messages: Sequence[Message], params: SamplingParams = GREEDY
    ) -> AsyncGenerator[Delta]:
        """Answer a conversation in the same way (given code)."""
        encoded = await asyncio.to_thread(self.llm.reader.read_chat, messages, params.documents)
        async with aclosing(self.deltas(encoded, params)) as deltas:
            async for delta in deltas:
                yield delta

    async def run(self, prompt: Encoded, params: SamplingParams) -> RequestOutput:
        """Begin a prompt on the event loop's own thread, where no cancel comes in between, and wait for all answers.

        Raises:
            what :meth:`LLM.begin` raises, or an answer has failed of.
        """
        return await self.llm.begin(prompt, params).wait_async()

    async def deltas(self, prompt: Encoded, params: SamplingParams) -> AsyncGenerator[Delta]:
        """The deltas of all answers to a prompt. It begins when the first one is asked for, on the same thread.

        When this iteration has been closed, the answers are cancelled already. The deltas come from the batcher's
        thread; only the event loop may touch the queue, so it is asked to.

        Raises:
            what :meth:`LLM.begin` raises, or an answer has failed of.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Delta] = asyncio.Queue()

        def deliver(delta: Delta) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, delta)

        generation = self.llm.begin(prompt, params, deliver)
        async with aclosing(generation.deltas_async(queue)) as deltas:
            async for delta in deltas:
                yield delta
