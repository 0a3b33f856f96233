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
    raise NotImplementedError("Week 1 Day 7 Task 2: Penalty and temperature")


def apply_temperature(logits: mx.array, temperature: float) -> mx.array:
    """Divide the scores, counted from the highest, by a temperature above 0: [V] → [V].

    Subtracting the highest score changes no probability. Without it, a very low temperature overflows to infinity.
    """
    raise NotImplementedError("Week 1 Day 7 Task 2: Penalty and temperature")


def keep_top_k(logits: mx.array, k: int) -> mx.array:
    """Set all but the k highest scores to −inf; of equal scores the lower ids stay.

    Args:
        logits: [V].
        k: 0, or V and more, keeps all.
    """
    raise NotImplementedError("Week 1 Day 7 Task 3: Top-k, top-p, min-p")


def keep_top_p(logits: mx.array, p: float) -> mx.array:
    """Keep the fewest tokens that together reach probability p, the most likely first; the others get −inf.

    Of equally likely tokens the lower ids stay. At least one token stays.

    Args:
        logits: [V].
        p: 1 keeps all.

    Source: Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration".
    """
    raise NotImplementedError("Week 1 Day 7 Task 3: Top-k, top-p, min-p")


def keep_min_p(logits: mx.array, min_p: float) -> mx.array:
    """Set to −inf the score of each token that is less likely than ``min_p`` times the most likely one.

    Args:
        logits: [V].
        min_p: 0 keeps all tokens; 1 keeps only the most likely, and tokens with exactly the same score.

    Source: Nguyen et al. 2024, "Turning Up the Heat: Min-p Sampling".
    """
    raise NotImplementedError("Week 1 Day 7 Task 3: Top-k, top-p, min-p")


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
    raise NotImplementedError("Week 1 Day 7 Task 4: Draw")


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
        raise NotImplementedError("Week 1 Day 7 Task 4: Draw")
