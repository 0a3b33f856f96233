"""A GGUF file's 4-bit blocks, taken over as they are.

GGUF stores its types Q4_1 and Q4_0 in blocks of 32 weights of a row. A block is a float16 scale d, in Q4_1 a float16
minimum m, then 16 bytes with two codes each, which lie as `pack_nibbles` puts them. A weight is code · d + m in Q4_1
and (code − 8) · d in Q4_0, which is code · d + m with m = −8 · d: exact in float16 and in the float32 sum.

Source: `ggml-quants.c` in the ggml repository.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tiny_llm.quantize import QuantizedTensor

GROUP_SIZE = 32
_SCALE_BYTES = 2
_NIBBLE_BYTES = GROUP_SIZE // 2
_Q4_1_BYTES = 2 * _SCALE_BYTES + _NIBBLE_BYTES


def is_quantized(name: str, shape: tuple[int, ...]) -> bool:
    """Whether the tensor of this name is kept in 4 bits: only the matrices of the blocks are."""
    return name.startswith("blocks.") and len(shape) == 2


def from_gguf_blocks(stored: np.ndarray) -> QuantizedTensor:
    """Take over rows of Q4_1 or Q4_0 blocks: codes and scales are moved, not computed anew.

    Args:
        stored: uint8 [out, in/32, 20] for Q4_1 or [out, in/32, 18] for Q4_0.
    """
    scales = _halves(stored[..., :_SCALE_BYTES])
    with_minima = stored.shape[-1] == _Q4_1_BYTES
    minima = _halves(stored[..., _SCALE_BYTES : 2 * _SCALE_BYTES]) if with_minima else -8 * scales
    nibbles = torch.from_numpy(stored[..., -_NIBBLE_BYTES:].copy())
    return QuantizedTensor(nibbles, scales, minima)


def _halves(stored: np.ndarray) -> Tensor:
    """uint8 [..., 2] → float16 [...]."""
    return torch.from_numpy(stored.copy().view(np.float16)[..., 0])


def take_rows(weight: QuantizedTensor, order: Tensor) -> QuantizedTensor:
    """The same matrix with its rows in another order: row i is row ``order[i]`` of ``weight``."""
    return QuantizedTensor(weight.nibbles[order], weight.scales[order], weight.minima[order])


def stack_rows(parts: list[QuantizedTensor]) -> QuantizedTensor:
    """Stack matrices of the same width and group size, one below the other."""
    return QuantizedTensor(
        torch.cat([part.nibbles for part in parts]),
        torch.cat([part.scales for part in parts]),
        torch.cat([part.minima for part in parts]),
    )
