"""Ragged batching: each step decodes some requests and prefills others, on pages taken as tokens come (Day 3.6)."""

from __future__ import annotations

from collections.abc import Collection

from tiny_llm.engine_core import EngineCore, Step
from tiny_llm.paged.limits import page_refusal, unknown_token
from tiny_llm.paged.model_runner import ModelRunner
from tiny_llm.ragged.decode_state import DecodeState
from tiny_llm.ragged.sampling_state import SamplingState
from tiny_llm.request import Request


class RaggedBatch(EngineCore):
    """Requests in the seats of a batch. A step fills its token budget with decodes, then with prompts."""

    def __init__(self, runner: ModelRunner, decode_state: DecodeState, token_budget: int = 128) -> None:
        """Start with idle seats.

        Args:
            runner: the model and its pool.
            decode_state: the pages of the seats; no sequence in it, and no other user of its allocator, holds a page.
            token_budget: how many tokens all requests together bring to a step at most.

        Raises:
            ValueError: the budget is below 1.
        """
        if token_budget < 1:
            raise ValueError(f"a budget of {token_budget} tokens per step: it must be at least 1")
        self.runner = runner
        self.decode_state = decode_state
        self.allocator = decode_state.allocator
        self.num_seats = decode_state.num_seats
        self.token_budget = token_budget
        self.max_positions = runner.model.config.max_positions
        self.vocab_size = runner.model.embedding.weight.shape[0]
        self.state = SamplingState(decode_state, self.max_positions)

    @property
    def idle(self) -> int:
        """How many requests may be pushed now: one per idle seat."""
        return len(self.state.idle)

    @property
    def requests(self) -> list[Request]:
        """The requests in seats, in the order in which they came."""
        return [running.request for _, running in self.state.line]

    def refusal(self, request: Request) -> str | None:
        """Why a request can't ever run here, or None: as :func:`page_refusal` says for the pages of one seat.

        A prompt with a token that the model doesn't have can't run either (:func:`unknown_token`).
        """
        most = min(self.decode_state.max_pages, self.allocator.num_pages - 1)
        reason = page_refusal(request, self.max_positions, self.decode_state.page_size, most)
        return reason or unknown_token(request, self.vocab_size)

    def push(self, request: Request) -> None:
        """Give a request a seat.

        Raises:
            ValueError: as :meth:`EngineCore.push` says.
        """
        self.require_entry(request)
        self.state.push(request)

    def step(self) -> Step:
        """Give the seats their pages, run the model once, sample, and let the finished requests leave.

        Returns:
            the requests that took part and the requests that have finished, both in the order of the seats.
        """
        raise NotImplementedError("Week 3 Day 6 Task 3: A mixed step")

    def abort(self, requests: Collection[Request]) -> None:
        """Let some requests leave their seats, and give their pages back.

        They keep the tokens that they have: a request may be pushed again. Requests that are in no seat are left out.
        """
        raise NotImplementedError("Week 3 Day 6 Task 3: A mixed step")
