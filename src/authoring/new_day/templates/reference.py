"""The running mean of tokens, of a whole sequence and in parts (Day NEW_NAME)."""

from __future__ import annotations

import torch
from torch import Tensor


def running_mean(x: Tensor) -> Tensor:
    """The mean of each token's vector and of all those before it.

    Args:
        x: [..., L, E].

    Returns:
        [..., L, E], in the dtype of ``x``: row i is the mean of the rows 0 … i. Sums are computed in float32.
    """
    counts = torch.arange(1, x.shape[-2] + 1, device=x.device)
    return (x.float().cumsum(dim=-2) / counts.unsqueeze(-1)).to(x.dtype)


class RunningMean:
    """The running mean of a sequence that comes in parts. It keeps a sum and a count, and no token."""

    def __init__(self) -> None:
        """Before the first token."""
        self.total: Tensor | float = 0.0
        self.count = 0

    def __call__(self, x: Tensor) -> Tensor:
        """The means at the next tokens, as `running_mean` of all tokens so far would give them.

        Args:
            x: [..., L, E]; L may differ from call to call, and may be 0.

        Returns:
            [..., L, E], in the dtype of ``x``. Sums are computed in float32.
        """
        wide, L = x.float(), x.shape[-2]
        counts = self.count + torch.arange(1, L + 1, device=x.device)
        sums = self.total + wide.cumsum(dim=-2)
        self.total = self.total + wide.sum(dim=-2, keepdim=True)
        self.count += L
        return (sums / counts.unsqueeze(-1)).to(x.dtype)
