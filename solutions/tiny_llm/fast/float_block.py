"""A transformer block in float32 or bfloat16: packed projections, fused small operations (Day 4.7, given code).

The stream between the blocks is float32 in either case. In bfloat16 are the inputs and outputs of projections, keys
and values.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from tiny_llm.fast.attend import TiledAttention
from tiny_llm.fast.block8 import attend_elsewhere, attend_pages
from tiny_llm.fast.float_rows import add, add_and_normalize, array_of, gate_numbers, split_numbers
from tiny_llm.fast.packed import Packed
from tiny_llm.fast.parts import Parts
from tiny_llm.fast.rooms import Room, Rooms
from tiny_llm.fast.rows8 import make_rows8
from tiny_llm.fast.small import normalize
from tiny_llm.kv_cache import LayerCache
from tiny_llm.paged.paged_cache import PagedCache
from tiny_llm.positional_encoding import Angles

FloatParts = Parts[Packed]
"""The weights of a block, packed."""


class FloatRooms(Rooms):
    """The memory that all blocks of a model use, one after the other."""

    def __init__(self, parts: FloatParts) -> None:
        """Nothing yet; ``parts`` are those of any block."""
        self.sizes = parts.shape, parts.qkv.width, parts.down.width
        self.dtype = parts.qkv.dtype
        self.tokens = 0
        self.angles = None

    def room(self, tokens: int) -> Room:
        """Room for a step of so many tokens, or more: what is float32 in either dtype."""
        if tokens > self.tokens:
            (H, Hkv, D), E, F = self.sizes
            widths = {"query": H * D, "key": Hkv * D, "value": Hkv * D, "heads": H * D, "lse": H}
            some = {name: np.zeros(tokens * width, np.float32) for name, width in widths.items()}
            nothing = np.zeros(0, np.float32)
            self.newest = Room(rows=make_rows8(0), qkv=nothing, gate_up=nothing, **some)
            self.normal = torch.zeros(tokens, E, dtype=self.dtype)
            self.gated = torch.zeros(tokens, F, dtype=self.dtype)
            self.tokens = tokens
        return self.newest


class FloatBlock:
    """A :class:`tiny_llm.model.TransformerBlock` in float32 or bfloat16.

    In float32 it computes what that block computes, but for the order in which numbers are added up. A token's result
    depends on its sequence alone where :class:`Packed` and the way to attend keep to that: then it has the same bits
    in whichever step it is computed. :class:`TiledAttention`, for bfloat16, and Day 3.3's kernel do; "auto" takes
    another way for more new tokens, so it is a rounding error off from one division into chunks to another.
    """

    def __init__(self, parts: FloatParts, rooms: FloatRooms) -> None:
        """Hold the weights, and the memory that all blocks use."""
        self.parts = parts
        self.rooms = rooms
        self.scale = np.float32(1 / math.sqrt(parts.shape[2]))

    def __call__(self, x: Tensor, angles: Angles, cache: LayerCache) -> Tensor:
        """[B, L, E] → [B, L, E], both float32; x is changed. Angles and cache as for a TransformerBlock."""
        parts, (B, L, E), workers = self.parts, x.shape, get_num_threads()
        count, stream = B * L, x.numpy().reshape(-1)
        room = self.rooms.room(count)
        normal, gated = self.rooms.normal[:count], self.rooms.gated[:count]
        cos, sin = self.rooms.tables(angles, B, L)
        rows = array_of(normal)
        normalize(count, workers, stream, E, parts.attention_norm, parts.attention_eps, rows)
        qkv = array_of(parts.qkv(normal))
        split_numbers(
            count, workers, qkv, parts.shape, parts.heads, cos, sin, room.query, room.key, room.value
        )
        heads = self._attend(room, B, L, cache, workers).to(self.rooms.dtype)
        new = array_of(parts.out(heads))
        add_and_normalize(count, workers, new, stream, E, parts.mlp_norm, parts.mlp_eps, rows)
        gate_up = array_of(parts.gate_up(normal))
        gate_numbers(count, workers, gate_up, parts.down.width, array_of(gated))
        add(count, workers, array_of(parts.down(gated)), stream, E)
        return x

    def _attend(self, room: Room, B: int, L: int, cache: LayerCache, workers: int) -> Tensor:
        """What attention gives for the queries of a room: [B·L, H·D], in one piece."""
        (H, Hkv, D), count = self.parts.shape, B * L
        if isinstance(cache, PagedCache) and isinstance(cache.attention, TiledAttention):
            attention = cache.attention
            step = attention.step_of(cache.meta, Hkv, H // Hkv)
            pages = attention.pages_of(cache.pool)[cache.layer]
            attend_pages(room, count, self.parts.shape, pages, step, self.scale, workers)
            return torch.from_numpy(room.heads[: count * H * D]).reshape(count, H * D)
        heads = attend_elsewhere(room, self.parts.shape, B, L, cache, float(self.scale))
        return torch.from_numpy(heads).reshape(count, H * D)
