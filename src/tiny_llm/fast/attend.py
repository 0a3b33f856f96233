"""Day 3.2's way to attend, by the kernel of this day; and its shortcut for a cache on pages."""

from __future__ import annotations

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from tiny_llm.fast.tiled_attention import Step, attend
from tiny_llm.paged.attention import Attended
from tiny_llm.paged.metadata import ForwardMeta


class TiledAttention:
    """A way to attend over pages in bfloat16, as :data:`tiny_llm.paged.attention.PagedAttention` describes it."""

    def __init__(self) -> None:
        """Nothing is known of any step yet."""
        self.meta: ForwardMeta | None = None
        self.step: Step | None = None

    def step_of(self, meta: ForwardMeta) -> Step:
        """The arrays of a step; all layers use the same."""
        if meta is not self.meta or self.step is None:
            arrays = meta.cu_seqlens_q.numpy(), meta.seq_lens_kv.numpy(), meta.block_table.contiguous().numpy()
            self.meta, self.step = meta, Step(*arrays)
        return self.step

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, meta: ForwardMeta, scale: float, causal: bool
    ) -> Attended:
        """Attend; arguments and results as for :func:`tiny_llm.paged.attention.paged_attention`."""
        (T, H, D), Hkv = query.shape, keys.shape[2]
        out, lse = np.empty((T, Hkv, H // Hkv, D), np.float32), np.empty((T, Hkv, H // Hkv), np.float32)
        attend(
            query.float().contiguous().numpy().reshape(T, Hkv, H // Hkv, D),
            keys.view(torch.int32).numpy(),
            values.view(torch.uint16).numpy(),
            self.step_of(meta),
            np.float32(scale),
            causal,
            get_num_threads(),
            out,
            lse,
        )
        return torch.from_numpy(out).reshape(T, H, D).to(query.dtype), torch.from_numpy(lse).reshape(T, H)
