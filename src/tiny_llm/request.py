"""One request: its tokens, its limits, and how its next token is chosen (Day 2.7)."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Self

from tiny_llm.arrays import Tensor
from tiny_llm.generate import Sample, greedy


class Request:
    """One prompt on its way through an engine. It knows its tokens, but no cache, no page and no seat.

    Two requests are different even where their tokens are equal: a request is compared by identity.
    """

    def __init__(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        end_ids: Collection[int] = (),
        sample: Sample = greedy,
        priority: int = 0,
        client: str = "",
    ) -> None:
        """Begin with the prompt alone.

        Args:
            prompt_ids: the prompt's token ids. They are copied.
            max_tokens: how many tokens to generate at most.
            end_ids: ids that end the output. The one that was generated belongs to the output. They are copied.
            sample: chooses a token from logits [V] and all the token ids so far, which it must not change.
            priority: requests with a higher number are served first, by an engine that has priorities (Day 4.3).
            client: whose request it is, for an engine that is fair between clients (Day 4.3).
        """
        self.token_ids = list(prompt_ids)  # prompt and output: it grows by one token whenever one is accepted
        self.prompt_len = len(self.token_ids)
        self.max_tokens = max_tokens
        self.end_ids = frozenset(end_ids)
        self.sample = sample
        self.priority = priority
        self.client = client
        self.error: str | None = None  # why an engine refused the request, or how it failed (Day 4.2)

    @property
    def prompt_ids(self) -> list[int]:
        """A copy of the prompt's token ids."""
        return self.token_ids[: self.prompt_len]

    @property
    def output(self) -> list[int]:
        """A copy of the tokens generated so far."""
        return self.token_ids[self.prompt_len :]

    @property
    def num_generated(self) -> int:
        """How many tokens were generated so far."""
        return len(self.token_ids) - self.prompt_len

    def renewed(self, sample: Sample) -> Self:
        """A request with the same prompt and settings, without output or error, that samples in another way."""
        request = copy.copy(self)
        request.token_ids, request.sample, request.error = self.prompt_ids, sample, None
        return request

    def refusal(self, max_positions: int) -> str | None:
        """Why this request can't ever run, or None.

        The prompt must leave at least one position free. A request that will run out of positions later may run: it
        ends there.

        Args:
            max_positions: how many positions prompt and output together may use.
        """
        raise NotImplementedError("Week 2 Day 7 Task 1: A request")

    def finished(self, max_positions: int) -> bool:
        """Whether the output is complete: ``max_tokens`` tokens, an end token, or all positions used.

        Args:
            max_positions: how many positions prompt and output together may use.
        """
        raise NotImplementedError("Week 2 Day 7 Task 1: A request")

    def accept(self, logits: Tensor) -> None:
        """Choose the next token from its logits [V], and append it to the tokens.

        Whatever the sampler raises comes through, and the tokens are as they were.
        """
        raise NotImplementedError("Week 2 Day 7 Task 1: A request")
