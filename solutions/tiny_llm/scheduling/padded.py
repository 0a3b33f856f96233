"""The same step as arguments of one length, as compiled models with fixed shapes take them (Day 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiny_llm.arrays import Tensor, host_array
from tiny_llm.paged.allocator import NULL_PAGE
from tiny_llm.paged.places import pages_for
from tiny_llm.scheduling.standing import Chunk

PADDING = 0
"""The token id that fills rows up; no row's result depends on it."""


@dataclass(frozen=True)
class PaddedArguments:
    """A step of B chunks, each padded to the same number L of tokens: whole pages, enough for the longest chunk.

    All arrays are on the host. Our engine doesn't run it: it shows what the padding would cost. The packed form is
    Day 3.2's `ForwardMeta`.

    Source: the names are those of shortfin's arguments for a compiled model, but for ``q_lens``, which it calls
    ``seq_lens``, too.
    """

    tokens: Tensor  # int32 [B, L]: the new tokens of each chunk, and then padding
    start_positions: Tensor  # int32 [B]: the position of the first of them
    q_lens: Tensor  # int32 [B]: how many of the L tokens are new ones
    seq_lens: Tensor  # int32 [B]: tokens of each sequence after this step, past and new
    seq_block_ids: Tensor  # int32 [B, pages of the longest sequence]: the pages of these, then the null page

    @property
    def computed(self) -> int:
        """How many tokens the model would be run on."""
        return len(self.tokens) * len(self.tokens[0])

    @property
    def in_vain(self) -> int:
        """How many of these are padding."""
        return self.computed - int(self.q_lens.sum())

    @classmethod
    def build(cls, plan: Sequence[Chunk], page_size: int) -> PaddedArguments:
        """The arguments of a step that is planned, before the model has run.

        Args:
            plan: at least one chunk.
            page_size: P.
        """
        running = [chunk.running for chunk in plan]
        counts = [chunk.count for chunk in plan]
        starts = [each.sequence.length for each in running]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        tokens = [each.next_ids(count) for each, count in zip(running, counts, strict=True)]
        blocks = [
            each.sequence.pages[: pages_for(end, page_size)] for each, end in zip(running, ends, strict=True)
        ]
        return cls(
            tokens=_fill_up(tokens, pages_for(max(counts), page_size) * page_size, PADDING),
            start_positions=host_array(starts),
            q_lens=host_array(counts),
            seq_lens=host_array(ends),
            seq_block_ids=_fill_up(blocks, pages_for(max(ends), page_size), NULL_PAGE),
        )


def _fill_up(rows: Sequence[list[int]], width: int, value: int) -> Tensor:
    """An array [len(rows), width] of rows that may be shorter."""
    return host_array([row + [value] * (width - len(row)) for row in rows])
