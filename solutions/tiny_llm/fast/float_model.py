"""A model in float32 or bfloat16 with packed projections (Day 4.7, given code)."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from tiny_llm.fast.float_block import FloatBlock, FloatParts, FloatRooms
from tiny_llm.fast.packed import Packed
from tiny_llm.fast.parts import HeadNorms
from tiny_llm.fast.rows8 import GROUP
from tiny_llm.layers import Embedding, Linear, Projection, RMSNorm
from tiny_llm.model import Transformer, TransformerBlock


class WideEmbedding(Embedding):
    """An embedding whose rows are looked up in float32, whatever the table is in."""

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Ids [...] → float32 [..., E]."""
        return super().__call__(token_ids).float()


class PackedHead:
    """The head: as :class:`Packed`, for inputs of any shape."""

    def __init__(self, packed: Packed) -> None:
        """Hold the weights."""
        self.packed = packed

    def __call__(self, x: Tensor) -> Tensor:
        """[..., E] → [..., V], float32."""
        rows = x.reshape(-1, self.packed.width).to(self.packed.dtype).contiguous()
        return self.packed(rows).float().reshape(*x.shape[:-1], self.packed.outputs)


def accelerate_floats(model: Transformer) -> Transformer:
    """The same model, in the same dtype, with its parts exchanged for faster ones; ``model`` itself stays as it is.

    Args:
        model: one on the CPU whose projections are all :class:`Linear`, in float32 or bfloat16. A tied head gets a
            copy of the embedding, which is packed.

    Raises:
        ValueError: the model is in another dtype or has other projections, or its sizes have no kernels.
    """
    config, dtype = model.config, model.embedding.weight.dtype
    if dtype not in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        raise ValueError(f"there are no fast blocks in {name}: load the model in float32 or bfloat16")
    widths = config.hidden_size, config.feed_forward_size, config.head_dim
    if any(width % GROUP for width in widths):
        raise ValueError(
            f"fast blocks take widths that are multiples of {GROUP}, and this model has {widths}"
        )
    fast = copy.copy(model)
    parts = [_parts(block, dtype) for block in model.blocks]
    rooms = FloatRooms(parts[0])
    fast.blocks = [FloatBlock(each, rooms) for each in parts]  # type: ignore[misc]
    fast.embedding = WideEmbedding(model.embedding.weight)
    table = Linear(model.embedding.weight) if config.tied_embeddings else model.head
    fast.head = PackedHead(_packed(table, dtype))
    return fast


def _packed(projection: Projection, dtype: torch.dtype) -> Packed:
    if not isinstance(projection, Linear):
        raise ValueError("the model's weights aren't floats: load_weights(…) without bits")
    return Packed(projection.weight, projection.bias, dtype)


def _norm(norm: RMSNorm | None) -> np.ndarray:
    return np.zeros(0, np.float32) if norm is None else norm.weight.float().numpy()


def _parts(block: TransformerBlock, dtype: torch.dtype) -> FloatParts:
    attention = block.attention
    eps = np.float32(attention.query_norm.eps if attention.query_norm else 0)
    return FloatParts(
        _norm(block.attention_norm),
        np.float32(block.attention_norm.eps),
        _packed(attention.qkv, dtype),
        HeadNorms(_norm(attention.query_norm), _norm(attention.key_norm), eps),
        (attention.num_heads, attention.num_kv_heads, attention.head_dim),
        _packed(attention.out, dtype),
        _norm(block.mlp_norm),
        np.float32(block.mlp_norm.eps),
        _packed(block.mlp.gate_up, dtype),
        _packed(block.mlp.down, dtype),
    )
