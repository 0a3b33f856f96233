"""Choosing the next token (Day 1.7).

The order is fixed: repetition penalty, temperature, top-k, top-p, min-p, draw. Each filter gets the
scores that the filter before it returned.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import mlx.core as mx

from tiny_llm.generate import greedy
from tiny_llm.sampling_params import SamplingParams


def apply_repetition_penalty(logits: mx.array, token_ids: Sequence[int], penalty: float) -> mx.array:
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
    seen = mx.array(sorted(set(token_ids)))
    scores = logits[seen]
    logits = mx.array(logits)
    logits[seen] = mx.where(scores > 0, scores / penalty, scores * penalty)
    return logits


def apply_temperature(logits: mx.array, temperature: float) -> mx.array:
    """Divide the scores, counted from the highest, by a temperature above 0: [V] → [V].

    Subtracting the highest score changes no probability. Without it, a very low temperature overflows to infinity.
    """
    return (logits - logits.max()) / temperature


def keep_top_k(logits: mx.array, k: int) -> mx.array:
    """Set all but the k highest scores to −inf; of equal scores the lower ids stay.

    Args:
        logits: [V].
        k: 0, or V and more, keeps all.
    """
    if not 0 < k < len(logits):
        return logits
    best = mx.argsort(-logits)[:k]  # of equal scores, the lower id comes first
    return _keep(logits, best)


def keep_top_p(logits: mx.array, p: float) -> mx.array:
    """Keep the fewest tokens that together reach probability p, the most likely first; the others get −inf.

    Of equally likely tokens the lower ids stay. At least one token stays.

    Args:
        logits: [V].
        p: 1 keeps all.

    Source: Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration".
    """
    if p == 1:
        return logits
    order = mx.argsort(-logits)
    probabilities = mx.softmax(logits[order])
    before = mx.cumsum(probabilities) - probabilities
    # The sums only grow, so the tokens to keep are the first of the order; MLX has no indexing by a mask.
    return _keep(logits, order[: int((before < p).sum())])


def keep_min_p(logits: mx.array, min_p: float) -> mx.array:
    """Set to −inf the score of each token that is less likely than ``min_p`` times the most likely one.

    Args:
        logits: [V].
        min_p: 0 keeps all tokens; 1 keeps only the most likely, and tokens with exactly the same score.

    Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling".
    """
    if min_p == 0:
        return logits
    # A ratio of probabilities is a difference of logits, so that no softmax is needed.
    lowest = logits.max() + math.log(min_p)
    return mx.where(logits < lowest, mx.array(-math.inf, logits.dtype), logits)


def _keep(logits: mx.array, ids: mx.array) -> mx.array:
    """A copy of ``logits`` [V] with −inf everywhere but at ``ids`` [K]."""
    kept = mx.full(logits.shape, -math.inf, dtype=logits.dtype)
    kept[ids] = logits[ids]
    return kept


def draw(logits: mx.array, uniform: float) -> int:
    """Choose a token with the probabilities softmax(logits), by inverting their cumulative sum.

    The token is the first, in order of ids, at which the sum of the probabilities exceeds ``uniform``. A token
    whose score is −inf is never chosen.

    Args:
        logits: [V], any float dtype; the sum is taken in float64.
        uniform: a random number, 0 ≤ uniform < 1.
    """
    with mx.stream(mx.cpu):  # no GPU of Apple's has float64
        cumulative = mx.cumsum(mx.softmax(logits.astype(mx.float64)))
    # Rounding leaves the last sum near 1, not at 1: scale by that sum, and stay strictly below it.
    total = float(cumulative[-1])
    target = min(uniform * total, math.nextafter(total, 0))
    return int((cumulative <= target).sum())


class Sampler:
    """Chooses the tokens of one request.

    It has a random generator of its own and takes one number from it per token drawn, also where one token alone is
    left. So a request with a seed gets the same draws whichever other requests run beside it.
    """

    def __init__(self, params: SamplingParams) -> None:
        """Seed the generator."""
        self.params = params
        self.random = random.Random(params.seed)

    def __call__(self, logits: mx.array, token_ids: Sequence[int] = ()) -> int:
        """Choose the next token: penalty, temperature, top-k, top-p, min-p, draw.

        At temperature 0 the token with the highest score after the penalty is chosen (of equal scores, the lowest
        id), and no random number is taken.

        Args:
            logits: [V], any float dtype, any device; left as it is. All arithmetic is float64, on the CPU,
                with an exp that is as exact as float32's.
            token_ids: prompt and output so far; left as they are.
        """
        params = self.params
        with mx.stream(mx.cpu):  # no GPU of Apple's has float64
            logits = apply_repetition_penalty(logits.astype(mx.float64), token_ids, params.repetition_penalty)
            if params.temperature == 0:
                return greedy(logits)  # type: ignore[arg-type]  # it serves both tracks
            logits = apply_temperature(logits, params.temperature)
            logits = keep_top_k(logits, params.top_k)
            logits = keep_top_p(logits, params.top_p)
            logits = keep_min_p(logits, params.min_p)
            return draw(logits, self.random.random())
