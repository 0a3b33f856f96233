"""Stage S10: requests through Day 4.6's engine, and through the two servers in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from programs.answers import BatchWatch
from programs.cores import PAGE_SIZE, pages_needed
from programs.loaded import LoadedModel
from programs.seats import Observe, Seen, Sharing

if TYPE_CHECKING:
    from tiny_llm.engine.llm import LLM
    from tiny_llm.engine.output import Delta
    from tiny_llm.engine.params import SamplingParams
    from tiny_llm.request import Request


@dataclass(frozen=True)
class Sizes:
    """How large an engine is made."""

    seats: int
    pages: int
    budget: int
    attention: str = "auto"


@contextmanager
def serving(loaded: LoadedModel, sizes: Sizes, **others: Any) -> Iterator[LLM]:
    """An engine around a model that is loaded; other arguments as for :class:`LLM`."""
    from tiny_llm.engine.limits import Limits
    from tiny_llm.engine.llm import LLM

    limits = Limits(sizes.seats, max(1, sizes.pages), PAGE_SIZE, sizes.budget)
    model: Any = loaded.model
    watch = model if isinstance(model, BatchWatch) else None
    model = model if watch is None else watch.model
    with LLM(model, loaded.tokenizer, limits=limits, attention=sizes.attention, **others) as llm:
        if watch is not None:
            llm.core.runner.model = watch  # type: ignore[assignment]  # it has all that a runner calls
        yield llm


def sizes_for(
    loaded: LoadedModel, requests: Sequence[Request], seats: int, budget: int, attention: str
) -> Sizes:
    """An engine with pages for the longest ``seats`` requests at a time."""
    return Sizes(seats, sum(pages_needed(loaded.model, requests)[:seats]), budget, attention)


def params_of(request: Request) -> SamplingParams:
    """The settings that a request's sampler has; without one it is greedy."""
    from tiny_llm.engine.params import SamplingParams
    from tiny_llm.sampler import Sampler

    sample = request.sample
    given = vars(sample.params) if isinstance(sample, Sampler) else {}
    return SamplingParams(**given, max_tokens=request.max_tokens)


def answer_all(
    loaded: LoadedModel,
    requests: Sequence[Request],
    seats: int,
    budget: int,
    attention: str,
    observe: Observe,
) -> None:
    """Bring requests to their ends through an engine with pages for the longest ``seats`` of them at a time."""
    sizes = sizes_for(loaded, requests, seats, budget, attention)
    with serving(loaded, sizes, max_queue=len(requests)) as llm:
        _Answers(llm, requests).run(observe)


class _Answers:
    """The answers to some requests while they grow."""

    def __init__(self, llm: LLM, requests: Sequence[Request]) -> None:
        self._llm = llm
        self._requests = requests
        self._deltas: SimpleQueue[tuple[Request, Delta]] = SimpleQueue()
        self._finished: set[Request] = set()

    def run(self, observe: Observe) -> None:
        """Submit all, then append the tokens of each as they come; a request that can't run gets its ``error``."""
        for request in self._requests:
            self._begin(request)
        while len(self._finished) < len(self._requests):
            request, delta = self._deltas.get()
            if delta.error is not None:
                raise delta.error
            request.token_ids += delta.token_ids
            if delta.finish_reason is not None:
                self._finished.add(request)
            observe(self._seen())

    def _begin(self, request: Request) -> None:
        request.error = self._llm.refusal(list(request.prompt_ids), params_of(request))
        if request.error is not None:
            self._finished.add(request)
            return

        def deliver(delta: Delta) -> None:
            self._deltas.put((request, delta))

        self._llm.begin(list(request.prompt_ids), params_of(request), deliver)

    def _seen(self) -> Seen:
        """The requests that have tokens and want more, in seats; the engine's own books belong to its thread."""
        running = [each for each in self._requests if each.num_generated and each not in self._finished]
        seats: list[Request | None] = [*running, *[None] * (self._llm.limits.num_seats - len(running))]
        computed = {each: each.prompt_len for each in self._requests if each.num_generated}
        scheduler = self._llm.core.scheduler
        sharing = Sharing(scheduler.cache, scheduler.reused, getattr(scheduler, "preemptions", None), {})
        finished = {each for each in self._finished if each.num_generated}
        return Seen(seats, None, computed, finished, sharing=sharing)


def through_grpc(
    loaded: LoadedModel, requests: Sequence[Request], seats: int, budget: int, attention: str
) -> None:
    """Send greedy requests to the gRPC service of Day 3.7 in front of this engine, a call per request."""
    from programs.loopback import calling

    sizes = sizes_for(loaded, requests, seats, budget, attention)
    with serving(loaded, sizes) as llm:
        replies = asyncio.run(calling(llm.batcher, llm.tokenizer, requests))
    for request, reply in zip(requests, replies, strict=True):
        request.token_ids += reply.token_ids


def through_http(
    loaded: LoadedModel, requests: Sequence[Request], seats: int, budget: int, attention: str
) -> None:
    """Send greedy requests to the HTTP server in front of this engine with OpenAI's client, a call per request."""
    sizes = sizes_for(loaded, requests, seats, budget, attention)
    with serving(loaded, sizes) as llm:
        outputs = asyncio.run(_ask_over_http(llm, requests))
    for request, output in zip(requests, outputs, strict=True):
        request.token_ids += output


async def _ask_over_http(llm: LLM, requests: Sequence[Request]) -> list[list[int]]:
    from openai import AsyncOpenAI

    from tiny_llm.server.app import make_app
    from tiny_llm.server.logprobs import token_text
    from tiny_llm.server.run import HttpServer
    from tiny_llm.server.settings import Settings

    settings = Settings()
    ids = {token_text(llm.tokenizer, token): token for token in range(llm.tokenizer.vocab_size)}
    server = HttpServer(make_app(llm, settings), llm)
    address = await server.start()

    async def ask(client: AsyncOpenAI, request: Request) -> list[int]:
        answer = await client.completions.create(
            model=settings.model_name,
            prompt=list(request.prompt_ids),
            max_tokens=request.max_tokens,
            temperature=0,
            logprobs=0,  # with them come the texts of the single tokens
        )
        shown = answer.choices[0].logprobs
        assert shown is not None
        return [ids[text] for text in shown.tokens or ()]

    try:
        async with AsyncOpenAI(base_url=f"http://{address}/v1", api_key="-", max_retries=0) as client:
            return await asyncio.gather(*(ask(client, request) for request in requests))
    finally:
        await server.stop(grace=0)
