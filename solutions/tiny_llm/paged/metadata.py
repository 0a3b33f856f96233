"""What attention has to know about a step: who brings which tokens, and where their past lies (Day 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from tiny_llm.paged.allocator import NULL_BLOCK
from tiny_llm.paged.pool import blocks_for
from tiny_llm.paged.sequence import PagedSequence


@dataclass(frozen=True)
class ForwardMeta:
    """One step of B sequences that bring T tokens together: a ragged batch, one row of T tokens for the model.

    Built once a step, on the host; every layer uses the same. The two lists say again what the tensors beside them
    say. Code that runs on the host reads the lists: asking a tensor for a number in each layer would be slow.
    """

    positions: Tensor  # integer [T]: where each token stands in its own sequence
    slot_mapping: Tensor  # integer [T]: the slot that its keys and values go to
    cu_seqlens_q: Tensor  # int32 [B + 1]: sequence b brings tokens cu_seqlens_q[b] … cu_seqlens_q[b + 1] − 1
    seq_lens_kv: Tensor  # int32 [B]: tokens of each sequence after this step, past and new
    block_table: (
        Tensor  # int32 [B, most blocks of one]: the blocks of each sequence, filled up with the null block
    )
    last_rows: Tensor  # integer [B]: which of the T tokens is the last of its sequence
    starts: list[int]  # cu_seqlens_q
    kv_lens: list[int]  # seq_lens_kv

    @classmethod
    def build(
        cls, sequences: Sequence[PagedSequence], q_lens: Sequence[int], device: torch.device | str = "cpu"
    ) -> ForwardMeta:
        """The metadata of a step in which each sequence brings as many tokens as ``q_lens`` says.

        Args:
            sequences: at least one; their ``length`` is the past, and blocks for the new tokens are reserved.
            q_lens: how many tokens each brings, 1 or more.
            device: where all the tensors go.

        Raises:
            ValueError: a sequence brings no token, or has no blocks for what it brings.
        """
        for sequence, q_len in zip(sequences, q_lens, strict=True):
            room = len(sequence.blocks) * sequence.block_size - sequence.length
            if not 1 <= q_len <= room:
                raise ValueError(f"a sequence brings {q_len} tokens; it has blocks for 1 to {room}")
        kv_lens = [sequence.length + q_len for sequence, q_len in zip(sequences, q_lens, strict=True)]
        starts = list(accumulate(q_lens, initial=0))
        steps = list(zip(sequences, kv_lens, strict=True))
        tables = [s.blocks[: blocks_for(kv_len, s.block_size)] for s, kv_len in steps]
        width = max(map(len, tables))
        filled = [table + [NULL_BLOCK] * (width - len(table)) for table in tables]
        positions = [p for s, kv_len in steps for p in range(s.length, kv_len)]
        slots = [slot for s, kv_len in steps for slot in s.slots(s.length, kv_len)]

        def tensor(numbers: Sequence[int] | Sequence[list[int]], dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.tensor(numbers, dtype=dtype, device=device)

        return cls(
            positions=tensor(positions),
            slot_mapping=tensor(slots),
            cu_seqlens_q=tensor(starts, torch.int32),
            seq_lens_kv=tensor(kv_lens, torch.int32),
            block_table=tensor(filled, torch.int32),
            last_rows=tensor([start - 1 for start in starts[1:]]),
            starts=starts,
            kv_lens=kv_lens,
        )
