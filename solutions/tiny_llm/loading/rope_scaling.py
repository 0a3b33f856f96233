"""The scaling of rotary positions with which Llama 3.1 and later read longer texts than Llama 3.

Llama 3 was trained on texts of 8,192 tokens, Llama 3.1 goes on to 131,072. Pairs that turn quickly tell neighbors
apart, as before. Pairs too slow for one turn in the old length would reach angles that training had never shown, so
their frequencies are divided by a factor of 8; a few pairs in between are divided by less. A GGUF file has the
divisors themselves, a Hugging Face folder the numbers that they follow from.

Source: `_compute_llama3_parameters` in transformers, after `apply_scaling` in Meta's llama-models repository.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Llama3Scaling:
    """The numbers of a config.json, under the names that they have there."""

    factor: float  # by which slow frequencies are divided
    low_freq_factor: float  # slow is a pair that makes fewer turns than this within the original positions
    high_freq_factor: float  # quick is one that makes more than this; above low_freq_factor
    original_max_position_embeddings: int  # positions that the model was trained on at first

    def divisors(self, head_dim: int, base: float) -> tuple[float, ...]:
        """What each of the D/2 frequencies is divided by: 1 for quick pairs, the factor for slow ones."""
        return tuple(self._divisor(base ** (-2 * pair / head_dim)) for pair in range(head_dim // 2))

    def _divisor(self, frequency: float) -> float:
        turns = self.original_max_position_embeddings * frequency / (2 * math.pi)
        quick = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = min(max(quick, 0.0), 1.0)
        return 1 / (kept + (1 - kept) / self.factor)
