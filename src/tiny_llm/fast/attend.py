"""Day 3.2's way to attend, by the kernel of this day; and its shortcut for a cache on pages."""

from __future__ import annotations

import numpy as np
import torch
from numba import get_num_threads
from torch import Tensor

from tiny_llm.fast.parts import HEAD_MULTIPLE
from tiny_llm.fast.tiled_attention import Pages, Step, attend, deal
from tiny_llm.paged.attention import Attended
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.pool import KvPool

KEPT = 4
"""Steps that are kept. With documents, attention takes four: own pages, system prompt, full pages, loose tokens."""


class TiledAttention:
    """A way to attend over pages in bfloat16, as :data:`tiny_llm.paged.attention.PagedAttention` describes it."""

    def __init__(self) -> None:
        """Nothing is known of any step yet."""
        self.steps: dict[tuple[int, int, int], tuple[ForwardMeta, Step]] = {}
        self.pool: KvPool | None = None

    def step_of(self, meta: ForwardMeta, heads: int, group: int) -> Step:
        """The arrays of a step, for the kernels.

        Each layer of the model asks for them, with the same ``meta``: it gets the same :class:`Step`, which is made
        once. Another ``meta`` gets another, be the numbers in it equal or not; and so do other heads. The newest
        ``KEPT`` are kept, and no more. What is kept of a step has its ``meta``, too: as long as this object is there,
        no new one can have its id.

        Args:
            meta: the step, on the CPU. It stays as it is, and so must its tensors: the arrays may share their memory.
            heads: Hkv. group: H/Hkv.

        Returns:
            the metadata as arrays that lie in one piece each, and the tasks of :func:`deal`.
        """
        raise NotImplementedError("Week 4 Day 7 Task 6: The block and the model")

    def pages_of(self, pool: KvPool) -> list[Pages]:
        """The pages of each layer; those of the newest pool are kept.

        Raises:
            ValueError: the pages aren't in bfloat16.
        """
        if pool is not self.pool:
            both = _bits(pool.keys), _bits(pool.values)
            self.pages = [Pages(keys, values) for keys, values in zip(*both, strict=True)]
            self.pool = pool
        return self.pages

    def __call__(
        self, query: Tensor, keys: Tensor, values: Tensor, meta: ForwardMeta, scale: float, causal: bool
    ) -> Attended:
        """Attend; arguments and results as for :func:`tiny_llm.paged.attention.paged_attention`.

        Raises:
            ValueError: the pages aren't in bfloat16, or the size of a head isn't a multiple of 32.
        """
        (T, H, D), Hkv = query.shape, keys.shape[2]
        if D % HEAD_MULTIPLE:
            raise ValueError(
                f"the tiled way to attend takes heads of a multiple of {HEAD_MULTIPLE} numbers, not {D}: choose auto"
            )
        out, lse = np.empty((T, Hkv, H // Hkv, D), np.float32), np.empty((T, Hkv, H // Hkv), np.float32)
        attend(
            query.float().contiguous().numpy().reshape(T, Hkv, H // Hkv, D),
            _bits(keys),
            _bits(values),
            self.step_of(meta, Hkv, H // Hkv),
            np.float32(scale),
            causal,
            get_num_threads(),
            out,
            lse,
        )
        return torch.from_numpy(out).reshape(T, H, D).to(query.dtype), torch.from_numpy(lse).reshape(T, H)


def _bits(pages: Tensor) -> np.ndarray:
    """Pages in bfloat16 as uint16 of the same shape, which share their memory."""
    if pages.dtype != torch.bfloat16:
        what = f"{pages.dtype}".removeprefix("torch.")
        raise ValueError(f"the tiled way to attend takes pages in bfloat16, not {what}: choose auto")
    return pages.view(torch.uint16).numpy()
