"""What the programs need to run ragged batches: slots, and pages enough for what runs in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from programs.paged import PAGE_SIZE, pages_needed, choose_for

if TYPE_CHECKING:
    from tiny_llm.batch import Request
    from tiny_llm.model import Transformer
    from tiny_llm.ragged.sampling_state import SamplingState


def make_state(
    model: Transformer, slots: int, num_pages: int, max_pages: int, attention: str = "auto"
) -> SamplingState:
    """Idle slots on pages of their own.

    Args:
        model: the model.
        slots: how many requests may run at a time.
        num_pages: how many pages there are, the null page left out.
        max_pages: how many of them one slot may hold.
        attention: the name of a way to attend.
    """
    from tiny_llm.paged.pool import KvPool
    from tiny_llm.ragged.decode_state import DecodeState
    from tiny_llm.ragged.sampling_state import SamplingState

    weight = model.embedding.weight
    pool = KvPool(model.config, 1 + num_pages, PAGE_SIZE, weight.dtype, weight.device)
    pages = DecodeState(pool, slots, max_pages, choose_for(attention, model))
    return SamplingState(pages, model.config.max_positions)


def state_for(
    model: Transformer, requests: Sequence[Request], slots: int, attention: str = "auto"
) -> SamplingState:
    """Idle slots, with pages for the longest ``slots`` of some requests at a time."""
    needed = pages_needed(model, requests)
    return make_state(model, slots, max(1, sum(needed[:slots])), max(1, *needed), attention)


def requests_for(
    prompts: Sequence[Sequence[int]], max_tokens: Sequence[int], end_ids: Collection[int]
) -> list[Request]:
    """A greedy request for each prompt."""
    from tiny_llm.batch import Request

    return [Request(prompt, limit, end_ids) for prompt, limit in zip(prompts, max_tokens, strict=True)]
