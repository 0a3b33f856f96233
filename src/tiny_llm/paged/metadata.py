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
        raise NotImplementedError("Week 3 Day 2 Task 1: The metadata of a step")
