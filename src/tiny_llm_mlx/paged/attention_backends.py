"""Choose between the ways to attend over pages (given code)."""

from __future__ import annotations

import mlx.core as mx

from .attention import PagedAttention, paged_attention

ATTENTIONS = ("auto", "reference")
"""The names: both mean Day 3.2's reference path."""


def choose_attention(name: str, dtype: mx.Dtype, device: None = None) -> PagedAttention:
    """Give the way to attend over pages that has this name.

    Args:
        name: one of :data:`ATTENTIONS`.
        dtype: of keys and values; not used, like ``device``. They are there so that both packages are called alike.
        device: likewise.

    Raises:
        ValueError: there is no such name on the MLX track. The message is one line and says what to choose instead.
    """
    if name not in ATTENTIONS:
        raise ValueError(
            f"with MLX there is no way {name!r} to attend; choose one of: {', '.join(ATTENTIONS)}"
        )
    return paged_attention
