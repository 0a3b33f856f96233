"""The same model, fast (Day 4.7)."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from tiny_llm.fast.block8 import Block8, HeadNorms, Parts, Rooms
from tiny_llm.fast.multiply import multiply
from tiny_llm.fast.rows8 import make_rows8
from tiny_llm.fast.small import quantize_twice
from tiny_llm.fast.table8 import Embedding8
from tiny_llm.fast.weights8 import LaidOut, lay_out_4_bits, lay_out_8_bits
from tiny_llm.layers import Linear, Projection, RMSNorm
from tiny_llm.model import Transformer, TransformerBlock
from tiny_llm.quantize import DequantizedMatmul, QuantizedLinear


class Linear8:
    """A projection of weights that are laid out, for inputs that count more than others: those of the head.

    An input becomes two rows in 8 bits, the second of which is what the first leaves. The weights are read once.
    """

    def __init__(self, weight: LaidOut) -> None:
        """Hold the weights."""
        self.weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        """[..., K] → [..., N], float32."""
        raise NotImplementedError("Week 4 Day 7 Task 6: The block and the model")


def _laid_out(projection: Projection) -> LaidOut:
    if isinstance(projection, Linear8):
        return projection.weight
    if not isinstance(projection, QuantizedLinear) or not isinstance(projection.multiply, DequantizedMatmul):
        raise ValueError(
            "the model's weights aren't in 4 bits as they were loaded: load_weights(…, bits=4, matmul='plain')"
        )
    return lay_out_4_bits(projection.multiply.weight, projection.bias)


def _table(head: Projection) -> LaidOut:
    if not isinstance(head, Linear):
        raise ValueError("the model's head isn't a Linear")
    return lay_out_8_bits(head.weight)


def _norm(norm: RMSNorm | None) -> np.ndarray:
    return np.zeros(0, np.float32) if norm is None else norm.weight.float().numpy()


def _parts(block: TransformerBlock) -> Parts:
    attention = block.attention
    eps = np.float32(attention.query_norm.eps if attention.query_norm else 0)
    return Parts(
        _norm(block.attention_norm),
        np.float32(block.attention_norm.eps),
        _laid_out(attention.qkv),
        HeadNorms(_norm(attention.query_norm), _norm(attention.key_norm), eps),
        (attention.num_heads, attention.num_kv_heads, attention.head_dim),
        _laid_out(attention.out),
        _norm(block.mlp_norm),
        np.float32(block.mlp_norm.eps),
        _laid_out(block.mlp.gate_up),
        _laid_out(block.mlp.down),
    )


def accelerate(model: Transformer) -> Transformer:
    """The same model with its parts exchanged for faster ones; ``model`` itself stays as it is."""
    raise NotImplementedError("Week 4 Day 7 Task 6: The block and the model")
