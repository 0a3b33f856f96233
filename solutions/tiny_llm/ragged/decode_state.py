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
        if len(q_lens) != self.num_slots or min(q_lens) < 0:
            raise ValueError(
                f"{list(q_lens)}: wanted is a number, 0 or more, for each of {self.num_slots} slots"
            )
        lengths, held = self.lengths.tolist(), self.held
        wanted = [blocks_for(past + new, self.page_size) for past, new in zip(lengths, q_lens, strict=True)]
        if max(wanted) > self.max_pages:
            raise ValueError(f"a slot needs {max(wanted)} pages; it may hold {self.max_pages}")
        lacking = [max(0, want - have) for want, have in zip(wanted, held, strict=True)]
        if sum(lacking) > len(self.available_page_indices):
            free, total = len(self.available_page_indices), self.num_pages - 1
            raise OutOfBlocks(f"{sum(lacking)} pages wanted, {free} of {total} free")
        for slot, (have, count) in enumerate(zip(held, lacking, strict=True)):
            for place in range(have, have + count):
                self.page_indices[slot, place] = self.available_page_indices.pop()

    def release(self, mask: Sequence[bool]) -> None:
        """Give back the pages of the slots that are marked, which are empty then.

        They go onto the stack as plain integers: slots in order, the pages of each in the order of its row.

        Args:
            mask: a bool for each of the B slots. An empty slot may be marked, too.

        Raises:
            ValueError: there are not B of them.
        """
        if len(mask) != self.num_slots:
            raise ValueError(f"{len(mask)} marks were given for {self.num_slots} slots")
        for slot in [slot for slot, marked in enumerate(mask) if marked]:
            pages = self.page_indices[slot].tolist()
            self.available_page_indices += [page for page in pages if page != NULL_BLOCK]
            self.page_indices[slot] = NULL_BLOCK
            self.lengths[slot] = 0

    def check(self) -> None:
        """Prove that each page but the null page is free or held by one slot, and that each slot's tokens have pages.

        It changes nothing, and may be called between any two steps.

        Raises:
            RuntimeError: the books don't balance; the message names the page or the slot.
        """
        listed = Counter(self.available_page_indices)
        for slot, row in enumerate(self.page_indices.tolist()):
            pages = [page for page in row if page != NULL_BLOCK]
            length = int(self.lengths[slot])
            if row[: len(pages)] != pages:
                raise RuntimeError(f"slot {slot} has a gap between its pages: {row}")
            if not 0 <= length <= len(pages) * self.page_size:
                raise RuntimeError(
                    f"slot {slot} has {length} tokens in {len(pages)} pages of {self.page_size}"
                )
            listed.update(pages)
        for page in sorted({*range(self.num_pages), *listed}):
            times, right = listed[page], int(NULL_BLOCK < page < self.num_pages)
            if times != right:
                raise RuntimeError(
                    f"page {page} is listed {times} times, free or held, and should be {right} times"
                )

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
        wanted = torch.tensor(q_lens)
        slots = wanted.nonzero().flatten()
        counts, past = wanted[slots], self.lengths[slots].long()
        kv_lens, ends = past + counts, counts.cumsum(dim=0)
        width = blocks_for(int(kv_lens.max()), self.page_size)
        # A slot may hold more pages than this step needs: they are not for attention to see.
        unused = torch.arange(width) * self.page_size >= kv_lens[:, None]
        table = self.page_indices[slots, :width].masked_fill(unused, NULL_BLOCK)
        # Of each of the T tokens: which row of the table it belongs to, where it stands, and where it goes.
        owner = torch.arange(len(slots)).repeat_interleave(counts)
        positions = torch.arange(len(owner)) + (past - (ends - counts))[owner]
        places = table[owner, positions // self.page_size] * self.page_size + positions % self.page_size
        starts = torch.nn.functional.pad(ends, (1, 0))
        return ForwardMeta(
            positions=positions.to(device),
            slot_mapping=places.to(device),
            cu_seqlens_q=starts.to(device, torch.int32),
            seq_lens_kv=kv_lens.to(device, torch.int32),
            block_table=table.to(device, torch.int32),
            last_rows=(ends - 1).to(device),
            starts=starts.tolist(),
            kv_lens=kv_lens.tolist(),
        )

    def insert(self, layer: int, meta: ForwardMeta, key: Tensor, value: Tensor) -> None:
        """Write the keys and values of a step's T tokens to their places in the pages of one layer.

        Args:
            layer: which one.
            meta: the step.
            key: [T, Hkv, D]; value likewise.
        """
        self.pages.write(layer, meta.slot_mapping, key, value)

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
        self.insert(layer, meta, key, value)
        keys, values = self.pages.keys[layer], self.pages.values[layer]
        out, _ = self.attention(query, keys, values, meta, scale, True)
        return out

    def advance(self, q_lens: Sequence[int]) -> None:
        """Note that so many tokens more of each slot are in its pages: once a step, after the model has run."""
        self.lengths += torch.tensor(q_lens, dtype=torch.int32)
