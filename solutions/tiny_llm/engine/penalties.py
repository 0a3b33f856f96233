"""Penalties for tokens that the output has already (Day 4.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor


def apply_count_penalties(logits: Tensor, output: Sequence[int], presence: float, frequency: float) -> Tensor:
    """Lower the score of each token of the output: once by ``presence``, and by ``frequency`` for each occurrence.

    Args:
        logits: [V], any float dtype; left as it is.
        output: the tokens generated so far, without the prompt; left as they are.
        presence: below 0, it raises the score instead; likewise ``frequency``.

    Returns:
        [V], of the same dtype; ``logits`` itself if there is nothing to change.

    Source: OpenAI's API reference, "Frequency and presence penalties".
    """
    if not output or presence == frequency == 0:
        return logits
    counts = Counter(output)
    seen = torch.tensor(list(counts), device=logits.device)
    times = torch.tensor(list(counts.values()), device=logits.device, dtype=logits.dtype)
    logits = logits.clone()
    logits[seen] -= presence + frequency * times
    return logits
