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
    logprobs = torch.log_softmax(logits.float(), dim=0)
    best: list[int] = []
    if top:
        # Sorting all of V would take a hundred times longer; ties with the last of the best must all be there.
        least = torch.topk(logprobs, min(top, len(logprobs))).values[-1]
        candidates = (logprobs >= least).nonzero()[:, 0]
        best = candidates[torch.argsort(logprobs[candidates], descending=True, stable=True)][:top].tolist()
    pairs = tuple((each, float(logprobs[each])) for each in best)
    return TokenLogprob(token_id, float(logprobs[token_id]), pairs)
