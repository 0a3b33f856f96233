"""What attention has to know about a step: which tokens each sequence brings, and where its past lies (Day 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tiny_llm.paged.allocator import NULL_PAGE


@dataclass(frozen=True)
class ForwardMeta:
    """One step of B sequences that bring T tokens together: a ragged batch, one row of T tokens for the model.

    Built once per step, on the host; every layer uses the same. The two lists say again what the tensors beside them
    say. Code that runs on the host reads the lists: asking a tensor for a number in each layer would be slow.
    """

    positions: Tensor  # int64 [T]: where each token stands in its own sequence
    slot_mapping: Tensor  # int64 [T]: the place in the pool that its keys and values go to
    cu_seqlens_q: Tensor  # int32 [B + 1]: sequence b brings tokens cu_seqlens_q[b] … cu_seqlens_q[b + 1] − 1
    seq_lens_kv: Tensor  # int32 [B]: tokens of each sequence after this step, past and new
    block_table: (
        Tensor  # int32 [B, most pages of one]: the pages of each sequence, filled up with the null page
    )
    last_rows: Tensor  # int64 [B]: which of the T tokens is the last of its sequence
    starts: list[int]  # cu_seqlens_q
    kv_lens: list[int]  # seq_lens_kv

    @classmethod
    def build(
        cls,
        tables: Tensor,
        lengths: Sequence[int],
        q_lens: Sequence[int],
        page_size: int,
        device: torch.device | str = "cpu",
    ) -> ForwardMeta:
        """The metadata of a step, by array operations on the tables of R sequences.

        Args:
            tables: int32 [R, M] on the host: the pages of each sequence, in order, filled up with the null page. They
                may be wider than the step needs, and a sequence may have more pages than it needs in this step. The
                metadata are copies: they stay as they are when the tables change.
            lengths: R numbers: how many tokens of each sequence are in its pages already.
            q_lens: R numbers: how many tokens each sequence brings. A sequence that brings 0 takes no part and has no
                row in the metadata; the others keep their order.
            page_size: P.
            device: where the six tensors go.

        Raises:
            ValueError: there are not R numbers in both lists, a q_len is negative, no sequence brings a token, or a
                sequence lacks pages for its tokens: then the message names its row in ``tables``.
        """
        if not len(tables) == len(lengths) == len(q_lens):
            raise ValueError(
                f"{len(lengths)} lengths and {len(q_lens)} q_lens were given for {len(tables)} rows of tables"
            )
        if min(q_lens, default=0) < 0 or not any(q_lens):
            raise ValueError(
                f"the sequences bring {list(q_lens)} tokens: one at least must bring some, and none fewer than 0"
            )
        brought = torch.tensor(q_lens)
        rows = brought.nonzero().flatten()  # the sequences that take part
        counts, past = brought[rows], torch.tensor(lengths)[rows]
        kv_lens, ends = past + counts, counts.cumsum(dim=0)
        needed = -(-kv_lens // page_size)  # pages, rounded up
        width = int(needed.max())
        table = tables[rows, :width]
        held = (table != NULL_PAGE).sum(dim=1)
        lacking = rows[needed > held].tolist()
        if lacking:
            row = lacking[0]
            raise ValueError(
                f"sequence {row} has {lengths[row]} tokens and brings {q_lens[row]}: it lacks pages for them"
            )
        # A sequence may have more pages than this step needs: attention must not see them.
        table = table.masked_fill(torch.arange(width) >= needed[:, None], NULL_PAGE)
        # For each of the T tokens: the row of `table` that it belongs to, its position there, its place in the pool.
        owner = torch.arange(len(rows)).repeat_interleave(counts)
        positions = torch.arange(len(owner)) + (past - (ends - counts))[owner]
        places = table[owner, positions // page_size] * page_size + positions % page_size
        starts = torch.nn.functional.pad(ends, (1, 0))
        return cls(
            positions=positions.to(device),
            slot_mapping=places.to(device),
            cu_seqlens_q=starts.to(device, torch.int32),
            seq_lens_kv=kv_lens.to(device, torch.int32),
            block_table=table.to(device),
            last_rows=(ends - 1).to(device),
            starts=starts.tolist(),
            kv_lens=kv_lens.tolist(),
        )
