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
        params, output = self.params, token_ids[self.prompt_len :]
        scores = logits.cpu().double()
        return super().__call__(
            apply_count_penalties(scores, output, params.presence_penalty, params.frequency_penalty),
            token_ids,
        )

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
    tokens = best_tokens(logits)
    for group in groups([row.sampler for row in rows]):
        scores = torch.stack(
            [rows[each].sampler.scores(logits[each], rows[each].token_ids) for each in group]
        )
        for each, token in zip(
            group, choose_group(scores, [rows[each].sampler for each in group]), strict=True
        ):
            tokens[each] = token
    return tokens


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
    if samplers[0].kind is Kind.BEST:
        return torch.argmax(scores, dim=1).tolist()
    params = [sampler.params for sampler in samplers]
    uniforms = [sampler.random.random() for sampler in samplers]
    scores = (scores - scores.amax(dim=1, keepdim=True)) / column([each.temperature for each in params])
    if samplers[0].kind is Kind.OPEN:
        return draw_rows(scores, uniforms).tolist()
    ids, kept, enough = keep_rows(scores, params)
    tokens: list[int] = ids.gather(1, draw_rows(kept, uniforms)[:, None])[:, 0].tolist()
    for row in (~enough).nonzero()[:, 0].tolist():
        tokens[row] = draw(keep(scores[row], params[row]), uniforms[row])
    return tokens


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
    vocab = scores.shape[1]
    ids = torch.topk(scores, min(vocab, CANDIDATES)).indices.sort().values
    # The best first; of equal scores, the lower ids.
    order = torch.argsort(scores.gather(1, ids), dim=1, descending=True, stable=True)
    best = scores.gather(1, ids.gather(1, order))
    top_k = column([each.top_k or vocab for each in params])
    # Top-p counts the probabilities that top-k leaves: those of all V tokens where it leaves all. The weight of the
    # best token is 1, so that equal tokens have the shares that softmax gives: a logarithm would round otherwise.
    left = best.masked_fill(torch.arange(best.shape[1]) >= top_k, -torch.inf)
    weights = left.exp()
    total = torch.where(top_k < vocab, weights.sum(1, keepdim=True), scores.exp().sum(1, keepdim=True))
    probabilities = weights / total
    before = probabilities.cumsum(1) - probabilities
    top_p = column([each.top_p if each.top_p < 1 else torch.inf for each in params])
    left = left.masked_fill(before >= top_p, -torch.inf)
    least = column([math.log(each.min_p) if each.min_p else -torch.inf for each in params])
    left = left.masked_fill(left < least, -torch.inf)
    # Tokens that are as good as the last candidate may be missing here, and so may some that top-k leaves.
    lowest = left.masked_fill(left == -torch.inf, torch.inf).amin(1)
    enough = (lowest > best[:, -1]) & ((top_k <= CANDIDATES) | (top_k == vocab))[:, 0] | (vocab <= CANDIDATES)
    return ids, torch.empty_like(left).scatter_(1, order, left), enough


def keep(scores: Tensor, params: SamplingParams) -> Tensor:
    """The filters of Day 1.7, one after the other: float64 [V] → [V] (given code)."""
    return keep_min_p(keep_top_p(keep_top_k(scores, params.top_k), params.top_p), params.min_p)


def draw_rows(scores: Tensor, uniforms: Sequence[float]) -> Tensor:
    """Day 1.7's :func:`draw` for each row: the places that are drawn, int64 [R].

    Args:
        scores: float64 [R, X]; a token whose score is −inf is never drawn.
        uniforms: a random number for each row, 0 ≤ uniform < 1.
    """
    cumulative = torch.softmax(scores, dim=1).cumsum(dim=1)
    total = cumulative[:, -1:]
    target = torch.minimum(column(uniforms) * total, total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True)[:, 0]


def column(values: Sequence[float]) -> Tensor:
    """float64 [R, 1] (given code)."""
    return torch.tensor(values, dtype=torch.float64)[:, None]
