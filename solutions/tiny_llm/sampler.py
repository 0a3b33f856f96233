"""Choosing the next token (Day 1.7).

The order is fixed: repetition penalty, temperature, top-k, top-p, min-p, draw. Each filter gets the
scores that the filter before it returned.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from tiny_llm.generate import greedy
from tiny_llm.sampling_params import SamplingParams


def apply_repetition_penalty(logits: Tensor, token_ids: Sequence[int], penalty: float) -> Tensor:
    """Make every token that has occurred less likely: divide its score by the penalty, or multiply if negative.

    Args:
        logits: [V]; left as it is.
        token_ids: prompt and output so far; left as they are. A token that occurs twice is penalized once.
        penalty: 1 changes nothing.

    Returns:
        [V].

    Source: Keskar et al. 2019, "CTRL", section 4.1.
    """
    if penalty == 1 or not token_ids:
        return logits
    seen = torch.tensor(sorted(set(token_ids)), device=logits.device)
    scores = logits[seen]
    logits = logits.clone()
    logits[seen] = torch.where(scores > 0, scores / penalty, scores * penalty)
    return logits


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Divide the scores, counted from the highest, by a temperature above 0: [V] → [V].

    Subtracting the highest score changes no probability. Without it, a very low temperature overflows to infinity.
    """
    return (logits - logits.max()) / temperature


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Set all but the k highest scores to −inf; of equal scores the lower ids stay.

    Args:
        logits: [V].
        k: 0, or V and more, keeps all.
    """
    if not 0 < k < len(logits):
        return logits
    best = torch.argsort(logits, descending=True, stable=True)[:k]
    return _keep(logits, best)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest tokens that together reach probability p, the most likely first; the others get −inf.

    Of equally likely tokens the lower ids stay. At least one token stays.

    Args:
        logits: [V].
        p: 1 keeps all.

    Source: Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration".
    """
    if p == 1:
        return logits
    order = torch.argsort(logits, descending=True, stable=True)
    probabilities = torch.softmax(logits[order], dim=0)
    before = probabilities.cumsum(dim=0) - probabilities
    return _keep(logits, order[before < p])


def keep_min_p(logits: Tensor, min_p: float) -> Tensor:
    """Set to −inf the score of each token that is less likely than ``min_p`` times the most likely one.

    Args:
        logits: [V].
        min_p: 0 keeps all tokens; 1 keeps only the most likely, and tokens with exactly the same score.

    Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling".
    """
    if min_p == 0:
        return logits
    # A ratio of probabilities is a difference of logits, so that no softmax is needed.
    return torch.where(logits < logits.max() + math.log(min_p), -math.inf, logits)


def _keep(logits: Tensor, ids: Tensor) -> Tensor:
    """A copy of ``logits`` [V] with −inf everywhere but at ``ids`` [K]."""
    kept = torch.full_like(logits, -math.inf)
    kept[ids] = logits[ids]
    return kept


def draw(logits: Tensor, uniform: float) -> int:
    """Choose a token with the probabilities softmax(logits), by inverting their cumulative sum.

    The token is the first, in order of ids, at which the sum of the probabilities exceeds ``uniform``. A token
    whose score is −inf is never chosen.

    Args:
        logits: [V], any float dtype; the sum is taken in float64.
        uniform: a random number, 0 ≤ uniform < 1.
    """
    cumulative = torch.softmax(logits.cpu().double(), dim=0).cumsum(dim=0)
    # Rounding leaves the last sum near 1, not at 1: scale by that sum, and stay strictly below it.
    total = float(cumulative[-1])
    target = min(uniform * total, math.nextafter(total, 0))
    return int(torch.searchsorted(cumulative, target, right=True))


class Sampler:
    """Chooses the tokens of one request.

    It has a random generator of its own and takes one number from it per token drawn, also where one token alone is
    left. So a request with a seed gets the same draws whichever other requests run beside it.
    """

    def __init__(self, params: SamplingParams) -> None:
        """Seed the generator."""
        self.params = params
        self.random = random.Random(params.seed)

    def __call__(self, logits: Tensor, token_ids: Sequence[int] = ()) -> int:
        """Choose the next token: penalty, temperature, top-k, top-p, min-p, draw.

        At temperature 0 the token with the highest score after the penalty is chosen (of equal scores, the lowest
        id), and no random number is taken.

        Args:
            logits: [V], any float dtype, any device; left as it is. All arithmetic is float64, on the CPU.
            token_ids: prompt and output so far; left as they are.
        """
        params = self.params
        # In float32 the smallest temperatures are 0. Not every device has float64, and one row is cheap to move.
        logits = apply_repetition_penalty(logits.cpu().double(), token_ids, params.repetition_penalty)
        if params.temperature == 0:
            return greedy(logits)
        logits = apply_temperature(logits, params.temperature)
        logits = keep_top_k(logits, params.top_k)
        logits = keep_top_p(logits, params.top_p)
        logits = keep_min_p(logits, params.min_p)
        return draw(logits, self.random.random())
