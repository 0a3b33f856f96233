"""How likely the model found a token, beside the best ones (Day 4.6)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenLogprob:
    """A token of an answer, and natural logarithms of probabilities that the model gave at its place."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the best tokens and their log-probabilities, the best first


def token_logprob(logits: Tensor, token_id: int, top: int) -> TokenLogprob:
    """The log-probability of a token, and those of the best ``top`` tokens.

    They are what the model says: taken before penalties, temperature and filters. Of equally likely tokens, the lower
    ids come first.

    Args:
        logits: [V], any float dtype, any device; left as it is. The arithmetic is float32.
        token_id: the token that was chosen; it need not be among the best.
        top: 0 or more; more than V are V.
    """
    raise NotImplementedError("Week 4 Day 6 Task 2: Penalties and log-probabilities")
