"""A transformer block in two kernels: all that comes before attention, and all that comes after it (Day 4.7)."""

from __future__ import annotations

import math
from inspect import unwrap

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from tiny_llm.fast.attend import TiledAttention
from tiny_llm.fast.compiling import exact_kernel
from tiny_llm.fast.multiply import multiply
from tiny_llm.fast.parts import Parts
from tiny_llm.fast.rooms import Room, Rooms
from tiny_llm.fast.small import gate, normalize, quantize, split
from tiny_llm.fast.tiled_attention import attend
from tiny_llm.fast.vectors import load_floats, store_floats
from tiny_llm.kv_cache import LayerCache
from tiny_llm.paged.paged_cache import PagedCache
from tiny_llm.positional_encoding import Angles


@exact_kernel
def put_bias(out, count, bias):
    """Each of the first ``count`` rows of ``out``, float32 [T·N], becomes the bias, float32 [N] (given code)."""
    for row in range(count):
        for i in range(len(bias)):
            out[row * len(bias) + i] = bias[i]


@exact_kernel
def before_attention(x, count, parts, room, cos, sin, workers):
    """All of a block that comes before attention: norm, projection, rotation; for the first ``count`` tokens.

    x, normalized by ``attention_norm``, goes to ``room.rows``, and the product of these and ``qkv`` to ``room.qkv``.
    From there the queries and keys, normalized where the model does so and rotated, and the values, go to
    ``room.query``, ``room.key`` and ``room.value``. With a bias, each row of ``room.qkv`` is the bias first
    (:func:`put_bias`), and the product is added. Without one, the product overwrites what another block or step has
    left there.

    Args:
        x: float32 [T·E]; stays as it is.
        count: tokens of the step; T or fewer. What lies behind them, in x and in all of ``room``, is left alone.
        parts: :class:`Parts` of the block; they stay as they are.
        room: :class:`Room` for ``count`` tokens or more. Nothing in it is read that this call hasn't written.
        cos, sin: float32 [T·D/2], of each token.
        workers: threads to spread over.
    """
    width = parts.qkv.width
    normalize(count, workers, x, width, parts.attention_norm, parts.attention_eps, room.rows)
    biased = len(parts.qkv.bias) > 0
    if biased:
        put_bias(room.qkv, count, parts.qkv.bias)
    multiply(parts.qkv, room.rows, count, biased, workers, room.qkv)
    split(count, workers, room.qkv, parts.shape, parts.heads, cos, sin, room.query, room.key, room.value)


@exact_kernel
def after_attention(heads, x, count, parts, room, workers):
    """All of a block that comes after attention: projection and MLP, added to x; for the first ``count`` tokens.

    What attention gave goes to ``room.rows`` in 8 bits, and the product of these and ``out`` is added to x. Then x,
    normalized by ``mlp_norm``, goes to ``room.rows``; the product of these and ``gate_up`` overwrites
    ``room.gate_up``; silu(gate) · up of that goes to ``room.rows``; and the product of these and ``down`` is added to
    x. None of the three matrices has a bias.

    Args:
        heads: float32 [T·H·D]; stays as it is. It may be ``room.heads``.
        x: float32 [T·E]; its first ``count`` rows are changed.
        count, parts, room, workers: as for :func:`before_attention`.
    """
    width = parts.out.width
    quantize(count, workers, heads, width, room.rows)
    multiply(parts.out, room.rows, count, True, workers, x)
    width = parts.gate_up.width
    normalize(count, workers, x, width, parts.mlp_norm, parts.mlp_eps, room.rows)
    multiply(parts.gate_up, room.rows, count, False, workers, room.gate_up)
    width = parts.down.width
    gate(count, workers, room.gate_up, width, room.rows)
    multiply(parts.down, room.rows, count, True, workers, x)


@exact_kernel
def write(room, count, heads, size, pages, slots):
    """Keys and values of a step to their places."""
    P = pages.keys.shape[1]
    for row in range(count):
        page, offset = slots[row] // P, slots[row] % P
        for head in range(heads):
            for i in range(0, size, 16):
                at = (row * heads + head) * size + i
                store_floats(pages.keys[page, offset, head], i, load_floats(room.key, at))
                store_floats(pages.values[page, offset, head], i, load_floats(room.value, at))


@exact_kernel
def attend_pages(room, count, shape, pages, step, scale, workers):
    """Write a step's keys and values to their places, and attend: from ``room.query`` to ``room.heads``."""
    H, Hkv, D = shape
    write(room, count, Hkv, D, pages, step.slots)
    query = room.query[: count * H * D].reshape((count, Hkv, H // Hkv, D))
    out = room.heads[: count * H * D].reshape((count, Hkv, H // Hkv, D))
    lse = room.lse[: count * H].reshape((count, Hkv, H // Hkv))
    attend(query, pages.keys, pages.values, step, scale, True, workers, out, lse)


@exact_kernel
def block_on_pages(x, count, parts, room, cos, sin, pages, step, scale, workers):
    """A whole block whose keys and values are on pages: as the three parts one after the other."""
    before_attention(x, count, parts, room, cos, sin, workers)
    attend_pages(room, count, parts.shape, pages, step, scale, workers)
    after_attention(room.heads, x, count, parts, room, workers)


def attend_elsewhere(
    room: Room, shape: tuple[int, int, int], rows: int, length: int, cache: LayerCache, scale: float
) -> np.ndarray:
    """What any cache gives for the queries of a step, float32 [T·H·D]. It may keep what it is given: copies.

    Args:
        room: with the queries, keys and values of the step.
        shape: H, Hkv, D. rows, length: B and L; T is B · L.
    """
    H, Hkv, D = shape
    query, key, value = (
        torch.from_numpy(flat[: rows * length * heads * D]).reshape(rows, length, heads, D).transpose(1, 2)
        for flat, heads in ((room.query, H), (room.key, Hkv), (room.value, Hkv))
    )
    kept = asked = query.dtype
    if isinstance(cache, PagedCache):
        kept = cache.pool.keys.dtype
        # As precise as in `attend_pages`: otherwise a request would come out otherwise beside documents.
        asked = asked if isinstance(unwrap(cache.attention), TiledAttention) else kept
    copies = key.to(kept, copy=True), value.to(kept, copy=True)
    heads = cache.attend(query.to(asked), *copies, scale)
    return heads.transpose(1, 2).float().contiguous().numpy().reshape(-1)


class Block8:
    """A :class:`tiny_llm.model.TransformerBlock` of weights in 4 bits, which computes in 8 bits."""

    def __init__(self, parts: Parts, rooms: Rooms) -> None:
        """Hold the weights, laid out, and the memory that all blocks use."""
        self.parts = parts
        self.rooms = rooms
        self.scale = np.float32(1 / math.sqrt(parts.shape[2]))

    def __call__(self, x: Tensor, angles: Angles, cache: LayerCache) -> Tensor:
        """[B, L, E] → [B, L, E], both float32; x is changed. Angles and cache as for a TransformerBlock."""
        B, L = x.shape[:2]
        H, Hkv, _ = self.parts.shape
        count, workers = B * L, get_num_threads()
        room = self.rooms.room(count)
        cos, sin = self.rooms.tables(angles, B, L)
        stream = x.numpy().reshape(-1)
        if isinstance(cache, PagedCache) and isinstance(cache.attention, TiledAttention):
            attention = cache.attention
            step, pages = (
                attention.step_of(cache.meta, Hkv, H // Hkv),
                attention.pages_of(cache.pool)[cache.layer],
            )
            block_on_pages(stream, count, self.parts, room, cos, sin, pages, step, self.scale, workers)
            return x
        before_attention(stream, count, self.parts, room, cos, sin, workers)
        heads = attend_elsewhere(room, self.parts.shape, B, L, cache, float(self.scale))
        after_attention(heads, stream, count, self.parts, room, workers)
        return x
