"""The tables of a step: which pages each sequence has (Day 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_llm.arrays import Tensor, host_array
from tiny_llm.paged.allocator import NULL_PAGE
from tiny_llm.paged.sequence import PagedSequence


def tables_of(sequences: Sequence[PagedSequence]) -> Tensor:
    """The table of some sequences, int32 [R, most pages of one], filled up with the null page (given code).

    Args:
        sequences: at least one.
    """
    width = max(len(sequence.pages) for sequence in sequences)
    rows = [sequence.pages + [NULL_PAGE] * (width - len(sequence.pages)) for sequence in sequences]
    return host_array(rows)
