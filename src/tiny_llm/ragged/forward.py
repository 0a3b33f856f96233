"""One run of the model over the new tokens of a batch's slots (Day 3.5)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tiny_llm.kv_cache import LayerCache
from tiny_llm.model import Transformer
from tiny_llm.paged.metadata import ForwardMeta
from tiny_llm.ragged.decode_state import DecodeState


class RaggedCache(LayerCache):
    """One layer of a batch's pages in one step, as the model sees it."""

    def __init__(self, state: DecodeState, layer: int, meta: ForwardMeta) -> None:
        """Look at one layer, for one step."""
        self.state = state
        self.layer = layer
        self.meta = meta

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Turn the model's axes, let the state do the rest, and turn back.

        Args:
            query: [1, H, T, D], the tokens of all slots in one row.
            key: [1, Hkv, T, D]; value likewise.
            scale: what to multiply the scores by.

        Returns:
            [1, H, T, D].
        """
        raise NotImplementedError("Week 3 Day 5 Task 4: Insert and attend")


def forward(model: Transformer, state: DecodeState, tokens: Sequence[int], q_lens: Sequence[int]) -> Tensor:
    """Run the model once over the new tokens of some slots: allocate, run, advance.

    If the model fails, no length has changed; pages that were allocated stay with their slots.

    Args:
        model: the model; tokens and metadata go where its embedding is.
        state: the pages.
        tokens: the T token ids of all slots, one slot's after the other's.
        q_lens: how many of them are each slot's; 0: it takes no part. They add up to T, 1 or more.

    Returns:
        [slots that take part, E]: of each, what ``model.hidden`` gives for its last token.

    Raises:
        OutOfBlocks: too few pages are free; nothing has changed.
        ValueError: ``q_lens`` don't add up to T, or are not what :meth:`DecodeState.allocate` takes. If pages are
            lacking as well, either error may come.
    """
    raise NotImplementedError("Week 3 Day 5 Task 5: One run")
