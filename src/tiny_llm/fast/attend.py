"""Day 3.2's way to attend, by the kernel of this day; and its shortcut for a cache on pages."""

from __future__ import annotations

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from tiny_llm.fast.tiled_attention import Pages, Step, attend, deal
from tiny_llm.paged.attention import Attended
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.pool import KvPool


class TiledAttention:
    """A way to attend over pages in bfloat16, as :data:`tiny_llm.paged.attention.PagedAttention` describes it."""

    def __init__(self) -> None:
        """Nothing is known of any step yet."""
        self.meta: ForwardMeta | None = None
        self.step: Step | None = None
        self.pool: KvPool | None = None

    def step_of(self, meta: ForwardMeta, heads: int, group: int) -> Step:
        """The arrays of a step; all layers use the same.

        Args:
            heads: Hkv. group: H/Hkv.
        """
        raise NotImplementedError("Week 4 Day 7 Task 6: The block and the model")

    def pages_of(self, pool: KvPool) -> list[Pages]:
        """The pages of each layer."""
        if pool is not self.pool:
            self.pool = pool
            both = pool.keys.view(torch.uint16).numpy(), pool.values.view(torch.uint16).numpy()
            self.pages = [Pages(keys, values) for keys, values in zip(*both, strict=True)]
        return self.pages

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, meta: ForwardMeta, scale: float, causal: bool
    ) -> Attended:
        """Attend; arguments and results as for :func:`tiny_llm.paged.attention.paged_attention`."""
        (T, H, D), Hkv = query.shape, keys.shape[2]
        out, lse = np.empty((T, Hkv, H // Hkv, D), np.float32), np.empty((T, Hkv, H // Hkv), np.float32)
        attend(
            query.float().contiguous().numpy().reshape(T, Hkv, H // Hkv, D),
            keys.view(torch.uint16).numpy(),
            values.view(torch.uint16).numpy(),
            self.step_of(meta, Hkv, H // Hkv),
            np.float32(scale),
            causal,
            get_num_threads(),
            out,
            lse,
        )
        return torch.from_numpy(out).reshape(T, H, D).to(query.dtype), torch.from_numpy(lse).reshape(T, H)
