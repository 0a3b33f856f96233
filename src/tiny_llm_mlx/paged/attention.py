"""Attention of a ragged batch over pages: the reference path (Day 3.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mlx.core as mx

from tiny_llm.paged.places import pages_for

from ..attention import causal_mask
from .metadata import ForwardMeta

Attended = tuple[mx.array, mx.array]
"""What attention gives for T tokens: [T, H, D], and the log-sum-exp of the scores [T, H], to merge parts by."""

PagedAttention = Callable[[mx.array, mx.array, mx.array, ForwardMeta, float, bool], Attended]
"""A way to attend: query [T, H, D], a layer's keys and values [N, P, Hkv, D], the step, the scale, whether causal."""


def attend_to(query: mx.array, key: mx.array, value: mx.array, scale: float, causal: bool) -> Attended:
    """Grouped attention of one sequence, with the log-sum-exp of each query and head.

    Computed in float32, whatever comes in; the output alone is rounded, once.

    Args:
        query: [L, H, D], the last L tokens of the sequence.
        key: [S, Hkv, D]; value likewise.
        scale: what to multiply the scores by.
        causal: query i sees keys 0 … S − L + i; if False, all S.

    Returns:
        [L, H, D] in the dtype of ``query``, zeros where nothing is seen, and float32 [L, H], −inf there.
    """
    raise NotImplementedError("Week 3 Day 2 Task 2: Attention, sequence by sequence")


def paged_attention(
    query: mx.array, keys: mx.array, values: mx.array, meta: ForwardMeta, scale: float, causal: bool = True
) -> Attended:
    """The reference path: sequence by sequence, gather its pages and attend.

    It is code on the host: it reads the lists ``starts`` and ``kv_lens``, not ``cu_seqlens_q`` and ``seq_lens_kv``.

    Args:
        query: [T, H, D], the tokens of all sequences one after the other.
        keys: a layer's pages [N, P, Hkv, D], with the new tokens already written; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: as in :func:`attend_to`, for each sequence.

    Returns:
        [T, H, D] and the log-sum-exp [T, H].
    """
    raise NotImplementedError("Week 3 Day 2 Task 2: Attention, sequence by sequence")


def merge_attention(parts: Sequence[Attended]) -> Attended:
    """Attention over several sets of keys, from the attention over each; computed in float32.

    Args:
        parts: of each set, [T, H, D] and the log-sum-exp [T, H].

    Returns:
        the same of all sets together, in the dtype of the parts; zeros and −inf where no part has seen anything.
    """
    raise NotImplementedError("Week 3 Day 2 Task 3: Merging parts")
