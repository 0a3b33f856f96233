"""Attention over pages in Metal, by tiles that a whole threadgroup shares (Day 3.4).

Day 3.3's simdgroups read a key once for every query. Here eight queries that read the same keys, the heads of a
group and neighboring tokens, are one threadgroup: it brings 32 keys, then their values, into its memory, and all of
them use what one has read.
"""

from __future__ import annotations

from itertools import pairwise

import mlx.core as mx

from ..paged.attention import Attended, merge_attention
from ..paged.metadata import ForwardMeta
from .decode_attention_metal import part_count
from .metal import SIMD, metal_kernel
from .paged_attention_metal import NAMES, check_sizes

ROWS = 8
"""Queries of a threadgroup: each has a simdgroup."""
MEMORY = 32768
"""Bytes of memory that a threadgroup has on Apple's GPUs."""


def tile_source() -> str:
    """The body of a Metal kernel: ROWS queries attend to one part of their sequence, 32 keys at a time.

    The queries of a sequence that share a key head are numbered token by token: number i is token i / group, query
    head head · group + i % group, for group = H / Hkv. A threadgroup has ROWS of them that follow one another, a
    *block*; its place in the grid is (sequence, block · Hkv + key head, part). A simdgroup has one query, a thread of
    it one key of a tile. Numbers behind the last query are *spare*: their threads help to load, and write nothing.

    What it finds: as in Day 3.3, and the constant ``ROWS``. Where n is what the block's last query sees, part p has
    keys p·n / parts … (p + 1)·n / parts − 1. The grid has 32 · ROWS · B threads, in y as many as there are blocks of
    the longest sequence, times Hkv, in z as many as there are parts.

    What it writes, every element once: ``out`` float [parts, T, H, D] and ``lse`` float [parts, T, H]; zeros and −inf
    where a query sees nothing of a part.
    """
    raise NotImplementedError("Week 3 Day 4 Task 3: One program")


def attend_tiles(
    query: mx.array,
    keys: mx.array,
    values: mx.array,
    meta: ForwardMeta,
    scale: float,
    causal: bool,
    parts: int,
) -> Attended:
    """Attend to each part of the past by itself, by the kernel of :func:`tile_source`.

    Args:
        query: [T, H, D], any float dtype.
        keys: a layer's pages [N, P, Hkv, D], any float dtype; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: whether a token sees only what stands before it, and itself; if False, all of its sequence.
        parts: how many parts the past is cut into.

    Returns:
        out [parts, T, H, D] and lse [parts, T, H], both float32; see :func:`tile_source`.
    """
    raise NotImplementedError("Week 3 Day 4 Task 4: The grid")


def block_count(meta: ForwardMeta, group: int) -> int:
    """Blocks of ROWS queries of the sequence that brings the most tokens.

    Args:
        meta: the step.
        group: query heads that share a key head.
    """
    most = max(stop - start for start, stop in pairwise(meta.starts)) * group
    return -(-most // ROWS)


def paged_attention_tiles(
    query: mx.array, keys: mx.array, values: mx.array, meta: ForwardMeta, scale: float, causal: bool = True
) -> Attended:
    """Day 3.2's attention by the kernel of :func:`tile_source`: a key is read once for a block of queries.

    Args:
        query: [T, H, D], the tokens of all sequences one after the other.
        keys: a layer's pages [N, P, Hkv, D], any float dtype, with the new tokens written; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: as in :func:`tiny_llm.paged.attention.paged_attention`.

    Returns:
        [T, H, D] in the dtype of ``query``, computed in float32, and the log-sum-exp, float32 [T, H]; zeros and −inf
        where a token sees nothing.

    Raises:
        ValueError: the sizes don't fit, as in :func:`check_sizes`, or a tile of 32 keys of D numbers and ROWS queries
            need more than :data:`MEMORY`.
    """
    raise NotImplementedError("Week 3 Day 4 Task 4: The grid")
