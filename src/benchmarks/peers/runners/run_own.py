"""The course's engine, in the course's own environment; `tiny_llm` is whichever the bench has put on the path."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from wire import Answer, Request, Run, serve

if TYPE_CHECKING:
    from tiny_llm.engine.llm import LLM
    from tiny_llm.engine.output import Delta

PAGES = 2304
"""Room for 32 requests of 900 + 128 tokens, with pages of 16: no engine has to preempt here."""


def start(settings: dict[str, Any]) -> Run:
    """Load the engine of Day 4.6."""
    return partial(run, make_engine(settings))


def make_engine(settings: dict[str, Any]) -> LLM:
    """The engine that is measured: whatever makes it faster is chosen here."""
    from tiny_llm.engine.limits import Limits
    from tiny_llm.engine.llm import LLM

    return LLM(settings["model"], dtype=settings["dtype"], limits=Limits(num_pages=PAGES))


def run(llm: LLM, requests: list[Request], room: int) -> list[Answer]:
    """Submit all requests, and wait for them."""
    from tiny_llm.engine.params import SamplingParams

    answers = [Answer() for _ in requests]
    generations = [
        llm.begin(
            request.prompt,
            SamplingParams(max_tokens=request.max_tokens, ignore_end=True),
            partial(_stamp, answer),
        )
        for request, answer in zip(requests, answers, strict=True)
    ]
    for generation, answer in zip(generations, answers, strict=True):
        answer.tokens = generation.wait().completion_tokens
    return answers


def _stamp(answer: Answer, delta: Delta) -> None:
    if answer.first is None and delta.token_ids:
        answer.first = time.perf_counter()


if __name__ == "__main__":
    serve(start)
