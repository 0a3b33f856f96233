"""A model in float32 or bfloat16 with packed projections (Day 4.7, given code)."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from tiny_llm.fast.float_block import FloatBlock, FloatRooms
from tiny_llm.fast.forms import forms_for
from tiny_llm.fast.packed import Packed
from tiny_llm.fast.parts import AS_IT_IS, parts_in
from tiny_llm.fast.rows8 import GROUP
from tiny_llm.layers import Embedding, Linear, Projection
from tiny_llm.model import Transformer


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
        ValueError: the model is in another dtype, its sizes have no kernels, or as :func:`parts_in` says.
    """
    config, dtype = model.config, model.embedding.weight.dtype
    if dtype not in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        raise ValueError(f"there are no fast blocks in {name}: load the model in float32 or bfloat16")
    if not forms_for(config):
        widths = config.hidden_size, config.feed_forward_size, config.head_dim
        raise ValueError(
            f"the fast kernels need widths that are multiples of {GROUP}, not {widths}: {AS_IT_IS}"
        )
    fast = copy.copy(model)
    parts = parts_in(model, lambda name, projection: _packed(name, projection, dtype))
    rooms = FloatRooms(parts[0])
    fast.blocks = [FloatBlock(each, rooms) for each in parts]  # type: ignore[misc]
    fast.embedding = WideEmbedding(model.embedding.weight)
    table = Linear(model.embedding.weight) if config.tied_embeddings else model.head
    fast.head = PackedHead(_packed("the head", table, dtype))
    return fast


def _packed(name: str, projection: Projection, dtype: torch.dtype) -> Packed:
    if not isinstance(projection, Linear):
        raise ValueError(f"{name} isn't in floats: load_weights(…) without bits")
    return Packed(projection.weight, projection.bias, dtype)
