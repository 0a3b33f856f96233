"""A transformer block in two kernels: all that comes before attention, and all that comes after it (Day 4.7)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from tiny_llm.fast.attend import TiledAttention
from tiny_llm.fast.compiling import exact_kernel
from tiny_llm.fast.multiply import multiply
from tiny_llm.fast.rows8 import Rows8, make_rows8
from tiny_llm.fast.small import gate, normalize, quantize, split
from tiny_llm.fast.tiled_attention import attend
from tiny_llm.fast.vectors import load_floats, store_floats
from tiny_llm.fast.weights8 import LaidOut
from tiny_llm.kv_cache import LayerCache
from tiny_llm.paged.attention import PagedCache
from tiny_llm.positional_encoding import Angles


class HeadNorms(NamedTuple):
    """The norms of query and key heads, of a model that has them."""

    query: np.ndarray  # float32 [D], or [0]
    key: np.ndarray
    eps: np.float32


class Parts(NamedTuple):
    """The weights of a block."""

    attention_norm: np.ndarray  # float32 [E]
    attention_eps: np.float32
    qkv: LaidOut
    heads: HeadNorms
    shape: tuple[int, int, int]  # H, Hkv, D
    out: LaidOut
    mlp_norm: np.ndarray
    mlp_eps: np.float32
    gate_up: LaidOut
    down: LaidOut


class Room(NamedTuple):
    """Memory that all blocks use, one after the other."""

    rows: Rows8
    qkv: np.ndarray  # float32 [T·(H + 2·Hkv)·D]
    query: np.ndarray  # float32 [T·H·D]
    key: np.ndarray  # float32 [T·Hkv·D]
    value: np.ndarray
    heads: np.ndarray  # float32 [T·H·D], what attention gives
    lse: np.ndarray  # float32 [T·H]
    gate_up: np.ndarray  # float32 [T·2·F]


def make_room(parts: Parts, tokens: int) -> Room:
    """Room for steps of so many tokens."""
    H, Hkv, D = parts.shape

    def numbers(width: int) -> np.ndarray:
        return np.zeros(tokens * width, np.float32)

    widest = max(parts.qkv.width, parts.out.width, parts.down.width)
    return Room(
        make_rows8(tokens * widest),
        numbers(parts.qkv.outputs),
        numbers(H * D),
        numbers(Hkv * D),
        numbers(Hkv * D),
        numbers(H * D),
        numbers(H),
        numbers(parts.gate_up.outputs),
    )


class Rooms:
    """The memory that all blocks of a model use: enough for the largest step so far."""

    def __init__(self, parts: Parts) -> None:
        """Nothing yet; ``parts`` are those of any block."""
        self.parts = parts
        self.tokens = 0
        self.angles: Angles | None = None

    def room(self, tokens: int) -> Room:
        """Room for a step of so many tokens, or more."""
        if tokens > self.tokens:
            self.tokens, self.newest = tokens, make_room(self.parts, tokens)
        return self.newest

    def tables(self, angles: Angles, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """The angles of a step, cos and sin, float32 [T·D/2]: all blocks get the same."""
        if angles is not self.angles:
            self.angles = angles
            self.cos, self.sin = (
                table.expand(rows, -1, -1, -1).reshape(-1).contiguous().numpy() for table in angles
            )
        return self.cos, self.sin


@exact_kernel
def add_bias(out, count, bias):
    for row in range(count):
        for i in range(len(bias)):
            out[row * len(bias) + i] = bias[i]


@exact_kernel
def before_attention(x, count, parts, room, cos, sin, workers):
    """Norm, queries, keys and values of a step, rotated, into ``room``.

    Args:
        x: float32 [T·E]. cos, sin: float32 [T·D/2].
    """
    raise NotImplementedError("Week 4 Day 7 Task 6: The block and the model")


@exact_kernel
def after_attention(heads, x, count, parts, room, workers):
    """Project what attention gave, add it to x, and then the MLP of a normalized x.

    Args:
        heads: float32 [T·H·D].
        x: float32 [T·E]; changed.
    """
    raise NotImplementedError("Week 4 Day 7 Task 6: The block and the model")


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
        H, Hkv, D = self.parts.shape
        count, workers = B * L, get_num_threads()
        room = self.rooms.room(count)
        cos, sin = self.rooms.tables(angles, B)
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
        query, key, value = (
            torch.from_numpy(flat[: count * heads * D]).reshape(B, L, heads, D).transpose(1, 2)
            for flat, heads in ((room.query, H), (room.key, Hkv), (room.value, Hkv))
        )
        dtype = cache.pool.keys.dtype if isinstance(cache, PagedCache) else x.dtype
        heads = cache.attend(query.to(dtype), key.to(dtype), value.to(dtype), float(self.scale)).transpose(
            1, 2
        )
        after_attention(
            heads.float().contiguous().numpy().reshape(-1), stream, count, self.parts, room, workers
        )
        return x
