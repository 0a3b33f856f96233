"""Choosing the tokens of a whole step at once (Day 4.6)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import torch
from torch import Tensor

from tiny_llm.engine.logprobs import TokenLogprob, token_logprob
from tiny_llm.engine.params import SamplingParams
from tiny_llm.engine.penalties import apply_count_penalties
from tiny_llm.sampler import Sampler, apply_repetition_penalty, draw, keep_min_p, keep_top_k, keep_top_p

GROUP = 8
"""How many rows are computed together: their scores should fit into the processor's cache."""
CANDIDATES = 1024
"""How many of the best tokens of a row are looked at first. Few filters leave more than these."""


class Kind(Enum):
    """How the token of a row is found."""

    PLAIN = auto()  # the best of the model's own scores
    BEST = auto()  # the best after penalties
    OPEN = auto()  # drawn from all tokens
    FILTERED = auto()  # drawn from those that the filters leave


class RowSampler(Sampler):
    """Chooses the tokens of one request, alone, or in a step together with other requests.

    The scores go through the penalties for presence and frequency, then through all of Day 1.7.
    """

    params: SamplingParams

    def __init__(self, params: SamplingParams, prompt_len: int) -> None:
        """Seed the generator (given code).

        Args:
            params: the settings.
            prompt_len: where the output begins in the token ids that the sampler is called with.
        """
        super().__init__(params)
        self.prompt_len = prompt_len
        self.chosen: int | None = None  # the token that the step has chosen already
        self.newest: TokenLogprob | None = None  # of the token handed out last, where the settings ask for it

    @property
    def kind(self) -> Kind:
        """How the token is found (given code)."""
        params = self.params
        if params.temperature == 0:
            penalties = params.presence_penalty, params.frequency_penalty, params.repetition_penalty
            return Kind.PLAIN if penalties == (0, 0, 1) else Kind.BEST
        return Kind.FILTERED if params.top_k or params.top_p < 1 or params.min_p else Kind.OPEN

    def __call__(self, logits: Tensor, token_ids: Sequence[int] = ()) -> int:
        """Hand out the token that the step has chosen, once; if there is none, choose it alone (given code).

        Args:
            logits: [V], any float dtype, any device; left as it is.
            token_ids: prompt and output so far; left as they are.
        """
        token, self.chosen = self.chosen, None
        if token is None:
            token = self.choose_alone(logits, token_ids)
        if self.params.logprobs is not None:
            self.newest = token_logprob(logits, token, self.params.logprobs)
        return token

    def choose_alone(self, logits: Tensor, token_ids: Sequence[int]) -> int:
        """Choose the next token: the penalties of this day, then :class:`Sampler`; arguments as for a call.

        All arithmetic is float64, on the CPU, also that of this day's penalties.
        """
        raise NotImplementedError("Week 4 Day 6 Task 3: A whole step at once")

    def scores(self, logits: Tensor, token_ids: Sequence[int]) -> Tensor:
        """The scores after all penalties, float64 [V] on the CPU; arguments as for a call (given code)."""
        params, output = self.params, token_ids[self.prompt_len :]
        scores = logits.cpu().double()
        scores = apply_count_penalties(scores, output, params.presence_penalty, params.frequency_penalty)
        return apply_repetition_penalty(scores, token_ids, params.repetition_penalty)


@dataclass(frozen=True)
class Row:
    """A request's row of a step."""

    sampler: RowSampler
    token_ids: Sequence[int]  # prompt and output so far


def choose_step(logits: Tensor, rows: Sequence[Row]) -> list[int]:
    """Choose a token for each row of a step: the tokens that each sampler would choose alone.

    One call of :func:`best_tokens` serves all rows that are greedy without penalties. The others are
    chosen in :func:`groups`, by :func:`choose_group`. A row that draws takes one random number from its own
    generator, whichever rows are beside it.

    Args:
        logits: [R, V], any float dtype, any device; left as it is.
        rows: R of them, which may be 0.
    """
    raise NotImplementedError("Week 4 Day 6 Task 3: A whole step at once")


def best_tokens(logits: Tensor) -> list[int]:
    """The best token of each row, of equal ones the lowest id: [R, V], any float dtype, any device (given code).

    On the CPU NumPy looks for them: for 32 rows of 49,152 scores it takes a seventh of the time that torch does.
    """
    if logits.device.type == "cpu":
        scores = logits.float() if logits.dtype is torch.bfloat16 else logits  # which NumPy doesn't have
        best: list[int] = scores.detach().numpy().argmax(axis=1).tolist()
        return best
    return torch.argmax(logits, dim=1).tolist()


def groups(samplers: Sequence[RowSampler]) -> Iterator[list[int]]:
    """The numbers of the rows that aren't plain, in groups of one kind, of ``GROUP`` rows at most (given code)."""
    for kind in (Kind.BEST, Kind.OPEN, Kind.FILTERED):
        numbers = [number for number, sampler in enumerate(samplers) if sampler.kind is kind]
        for start in range(0, len(numbers), GROUP):
            yield numbers[start : start + GROUP]


def choose_group(scores: Tensor, samplers: Sequence[RowSampler]) -> list[int]:
    """Temperature, filters and draw for some rows at once.

    Rows without a filter are drawn from all V tokens, the others from their candidates (:func:`keep_rows`). A row for
    which these may not be enough is filtered as on Day 1.7, which sorts all of V.

    Args:
        scores: float64 [R, V], after the penalties; left as they are.
        samplers: one per row, all of one kind: the best token (no random number is taken), without filters, with.
    """
    raise NotImplementedError("Week 4 Day 6 Task 3: A whole step at once")


def keep_rows(scores: Tensor, params: Sequence[SamplingParams]) -> tuple[Tensor, Tensor, Tensor]:
    """Top-k, top-p and min-p on the best tokens of each row.

    Args:
        scores: float64 [R, V], after the temperature: 0 is the best of each row. They are left as they are.
        params: the settings of each row.

    Returns:
        - [R, C], the ids of the C = min(V, ``CANDIDATES``) best tokens of each row, in ascending order;
        - [R, C], their scores, −inf for those that are filtered out;
        - bool [R], whether no other token of the row would be kept, for certain.
    """
    raise NotImplementedError("Week 4 Day 6 Task 3: A whole step at once")


def keep(scores: Tensor, params: SamplingParams) -> Tensor:
    """The filters of Day 1.7, one after the other: float64 [V] → [V] (given code)."""
    return keep_min_p(keep_top_p(keep_top_k(scores, params.top_k), params.top_p), params.min_p)


def draw_rows(scores: Tensor, uniforms: Sequence[float]) -> Tensor:
    """Day 1.7's :func:`draw` for each row: the places that are drawn, int64 [R].

    Args:
        scores: float64 [R, X]; a token whose score is −inf is never drawn.
        uniforms: a random number for each row, 0 ≤ uniform < 1.
    """
    raise NotImplementedError("Week 4 Day 6 Task 3: A whole step at once")


def column(values: Sequence[float]) -> Tensor:
    """float64 [R, 1] (given code)."""
    return torch.tensor(values, dtype=torch.float64)[:, None]
