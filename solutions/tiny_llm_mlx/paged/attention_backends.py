"""Choose between the ways to attend over pages (given code)."""

from __future__ import annotations

import mlx.core as mx

from ..kernels.metal import why_not
from .attention import PagedAttention, paged_attention

ATTENTIONS = ("auto", "reference", "metal", "metal-tiles")
"""The names: the faster on this machine; Day 3.2's reference path; the kernels of Days 3.3 and 3.4."""


def choose_attention(name: str, dtype: mx.Dtype, device: None = None) -> PagedAttention:
    """Give the way to attend over pages that has this name.

    "auto" is Day 3.3's kernel where there is Metal, and Day 3.2's path elsewhere. Each kernel is imported only when
    it is asked for; without Metal it runs on the CPU, far too slowly for a model.

    Args:
        name: one of :data:`ATTENTIONS`.
        dtype: of keys and values; not used, like ``device``. They are there so that both packages are called alike.
        device: likewise.

    Raises:
        ValueError: there is no such name on the MLX track, or no kernel can run on this machine. The message is one
            line and says what to choose instead.
    """
    if name not in ATTENTIONS:
        raise ValueError(
            f"with MLX there is no way {name!r} to attend; choose one of: {', '.join(ATTENTIONS)}"
        )
    if name == "reference" or (name == "auto" and not mx.metal.is_available()):
        return paged_attention
    if (reason := why_not()) is not None:
        raise ValueError(f"the {name} way to attend is a kernel, and {reason}; choose reference")
    if name == "metal-tiles":
        from ..kernels.paged_attention_tiles_metal import paged_attention_tiles

        return paged_attention_tiles
    from ..kernels.paged_attention_metal import paged_attention_metal

    return paged_attention_metal
