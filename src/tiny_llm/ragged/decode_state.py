"""The pages of a batch: who holds which, what lies in them, and attention over them (Day 3.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from tiny_llm.paged.allocator import NULL_BLOCK, OutOfBlocks
from tiny_llm.paged.attention import PagedAttention, paged_attention
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.paged.pool import KvPool, blocks_for


class DecodeState:
    """The physical side of a batch of B slots: the pages of each, in order, and how many tokens are in them.

    It knows nothing of requests or tokens. A page is free or belongs to one slot. The tables are on the host.
    """

    def __init__(
        self, pages: KvPool, num_slots: int, max_pages: int, attention: PagedAttention = paged_attention
    ) -> None:
        """All pages are free, but for the null page; all slots are empty.

        Args:
            pages: keys and values of all layers, N pages of P tokens; nobody else may use them.
            num_slots: B.
            max_pages: M, how many pages one slot may hold at most.
            attention: how to attend.

        Raises:
            ValueError: ``num_slots`` or ``max_pages`` is below 1.
        """
        if num_slots < 1 or max_pages < 1:
            raise ValueError(f"{num_slots} slots with {max_pages} pages each: both must be at least 1")
        self.pages = pages
        self.page_size = pages.block_size  # P
        self.num_pages = pages.keys.shape[1]  # N, the null page included
        self.attention = attention
        self.page_indices = torch.full((num_slots, max_pages), NULL_BLOCK, dtype=torch.int32)  # [B, M]
        self.lengths = torch.zeros(num_slots, dtype=torch.int32)  # [B]: tokens of each that are in its pages
        self.available_page_indices = list(range(self.num_pages - 1, NULL_BLOCK, -1))  # the next one last

    @property
    def num_slots(self) -> int:
        """B."""
        return len(self.lengths)

    @property
    def max_pages(self) -> int:
        """M."""
        return self.page_indices.shape[1]

    @property
    def held(self) -> list[int]:
        """How many pages each slot holds."""
        return (self.page_indices != NULL_BLOCK).sum(dim=1).tolist()

    def allocate(self, q_lens: Sequence[int]) -> None:
        """Give each slot the pages that it lacks for its new tokens; all of them, or nobody gets any.

        A slot takes a page only when the ones that it holds are full. Slots are served in order, and the page
        that was freed last goes out first.

        Args:
            q_lens: how many tokens each of the B slots brings to the next step; 0: it takes no part.

        Raises:
            OutOfBlocks: fewer pages are free than are lacking; the message says how many.
            ValueError: there are not B numbers, one is negative, or a slot would need more pages than it may hold.
        """
        raise NotImplementedError("Week 3 Day 5 Task 1: Pages for a step")

    def release(self, mask: Sequence[bool]) -> None:
        """Give back the pages of the slots that are marked, which are empty then.

        They go onto the stack as plain integers: slots in order, the pages of each in the order of its row.

        Args:
            mask: a bool for each of the B slots. An empty slot may be marked, too.

        Raises:
            ValueError: there are not B of them.
        """
        raise NotImplementedError("Week 3 Day 5 Task 1: Pages for a step")

    def check(self) -> None:
        """Prove that each page but the null page is free or held by one slot, and that each slot's tokens have pages.

        It changes nothing, and may be called between any two steps.

        Raises:
            RuntimeError: the books don't balance; the message names the page or the slot.
        """
        raise NotImplementedError("Week 3 Day 5 Task 2: The books")

    def metadata(self, q_lens: Sequence[int], device: torch.device | str = "cpu") -> ForwardMeta:
        """What Day 3.2's attention has to know of a step, made from the tables; array operations are recommended.

        Nothing is checked here: :meth:`allocate` has refused what makes no step, and given it its pages.

        Args:
            q_lens: how many tokens each of the B slots brings; 0: it takes no part, and has no row in the metadata.
                At least one brings some, and each has the pages for what it brings.
            device: where the tensors go.

        Returns:
            the metadata of the slots that take part, in the order of the slots. ``positions``, ``slot_mapping`` and
            ``last_rows`` are int64; ``cu_seqlens_q``, ``seq_lens_kv`` and ``block_table`` are int32.
        """
        raise NotImplementedError("Week 3 Day 5 Task 3: A step from tables")

    def insert(self, layer: int, meta: ForwardMeta, key: Tensor, value: Tensor) -> None:
        """Write the keys and values of a step's T tokens to their places in the pages of one layer.

        Args:
            layer: which one.
            meta: the step.
            key: [T, Hkv, D]; value likewise.
        """
        raise NotImplementedError("Week 3 Day 5 Task 4: Insert and attend")

    def update_decode_state_and_compute_attn(
        self, layer: int, meta: ForwardMeta, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Insert a step's new keys and values, then attend over the pages of that layer.

        ``self.attention`` gets its six arguments by place, the last one, ``causal``, True.

        Args:
            layer: which one.
            meta: the step.
            query: [T, H, D].
            key: [T, Hkv, D]; value likewise.
            scale: what to multiply the scores by.

        Returns:
            [T, H, D].
        """
        raise NotImplementedError("Week 3 Day 5 Task 4: Insert and attend")

    def advance(self, q_lens: Sequence[int]) -> None:
        """Note that so many tokens more of each slot are in its pages: once a step, after the model has run."""
        raise NotImplementedError("Week 3 Day 5 Task 5: One run")
