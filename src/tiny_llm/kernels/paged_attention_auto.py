"""The faster way to attend over pages on the CPU, sequence by sequence (Day 3.3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tiny_llm.kernels.paged_attention_cpu import paged_attention_cpu
from tiny_llm.paged.attention import Attended, merge_attention
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.places import pages_for

FEW_QUERIES = 8
"""Up to this many new tokens of a sequence the kernel is faster; beyond, gathering once and torch's attention are."""


def attend_fused(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> Attended:
    """Day 3.2's :func:`attend_to` by torch's fused attention for the CPU: no array of scores.

    torch's attention has the right causal rule only for as many keys as queries. So the past, which all new tokens
    see, and the new tokens are attended to separately, and merged.

    Args:
        query: [L, H, D], the last L tokens of the sequence.
        key: [S, Hkv, D], S ≥ L, of the same dtype; value likewise.
        scale: what to multiply the scores by.
        causal: query i sees keys 0 … S − L + i; if False, all S.

    Returns:
        [L, H, D] in the dtype of ``query``, and the log-sum-exp, float32 [L, H].
    """
    raise NotImplementedError("Week 3 Day 3 Task 6: Many queries")


def _fused(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> Attended:
    """torch's kernel with the log-sum-exp, which the public function doesn't return (given code)."""
    if len(key) == 0:  # torch's would divide by 0
        return torch.zeros_like(query), torch.full(query.shape[:2], -math.inf)
    heads = [x.transpose(0, 1)[None] for x in (query, key, value)]
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*heads, 0.0, causal, scale=scale)
    return out[0].transpose(0, 1), lse[0].T


def paged_attention_auto(
    query: Tensor, keys: Tensor, values: Tensor, meta: ForwardMeta, scale: float, causal: bool = True
) -> Attended:
    """The kernel for sequences with few new tokens; gathering and torch's fused attention for the others.

    Args:
        query: [T, H, D] on the CPU, in the dtype of ``keys``.
        keys: a layer's pages [N, P, Hkv, D], float32 or bfloat16, with the new tokens written; values likewise.
        meta: the step.
        scale: what to multiply the scores by.
        causal: as in :func:`tiny_llm.paged.attention.paged_attention`.

    Returns:
        [T, H, D] in the dtype of ``query``, and the log-sum-exp, float32 [T, H].
    """
    raise NotImplementedError("Week 3 Day 3 Task 6: Many queries")
