"""The cache in front of a pool: write a step's keys and values, then attend over pages (Day 3.2)."""

from __future__ import annotations

from tiny_llm.arrays import Tensor
from tiny_llm.kv_cache import LayerCache
from tiny_llm.paged.attention import PagedAttention, paged_attention
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.pool import KvPool


def update_decode_state_and_compute_attn(
    pool: KvPool,
    layer: int,
    meta: ForwardMeta,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    attention: PagedAttention = paged_attention,
) -> Tensor:
    """Write a step's new keys and values into one layer of the pool, then attend over that layer's pages.

    In this order, so that new tokens see one another. ``attention`` is called once, with its six arguments by
    position; the last of them, ``causal``, is True.

    Source: the name is that of simply's ``ragged_paged_attention.py``.

    Args:
        pool: keys and values of all layers.
        layer: the layer that runs.
        meta: the step.
        query: [T, H, D], the tokens of all sequences one after the other.
        key: [T, Hkv, D]; value likewise.
        scale: what to multiply the scores by.
        attention: how to attend.

    Returns:
        [T, H, D].
    """
    raise NotImplementedError("Week 3 Day 2 Task 4: One run for all")


class PagedCache(LayerCache):
    """One layer of a pool in one step, as the model sees it."""

    def __init__(
        self, pool: KvPool, layer: int, meta: ForwardMeta, attention: PagedAttention = paged_attention
    ) -> None:
        """Look at one layer of the pool, for one step."""
        self.pool = pool
        self.layer = layer
        self.meta = meta
        self.attention = attention

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Turn the model's axes to those of a ragged batch, write and attend, and turn back.

        Args:
            query: [1, H, T, D], the tokens of all sequences in one row.
            key: [1, Hkv, T, D]; value likewise.
            scale: what to multiply the scores by.

        Returns:
            [1, H, T, D].
        """
        raise NotImplementedError("Week 3 Day 2 Task 4: One run for all")
