"""What the programs need to run requests on pages: a way to attend, and a pool of the right size."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from coursekit.errors import CourseError

if TYPE_CHECKING:
    from tiny_llm.batch import Request
    from tiny_llm.generate import Sample
    from tiny_llm.model import Transformer
    from tiny_llm.paged.attention import PagedAttention
    from tiny_llm.paged.batch import PagedBatch

PAGE_SIZE = 16
"""Tokens a block, in all programs."""


def choose(name: str, dtype: str, device: str) -> PagedAttention:
    """The way to attend that goes by a name.

    Raises:
        CourseError: there is no such way, or not for this dtype or device.
    """
    import torch

    from tiny_llm.paged.choice import choose_attention

    try:
        return choose_attention(name, getattr(torch, dtype), device)
    except ValueError as error:
        raise CourseError(str(error)) from None


def choose_for(name: str, model: Transformer) -> PagedAttention:
    """The same for a model that is loaded."""
    weight = model.embedding.weight
    return choose(name, str(weight.dtype).removeprefix("torch."), weight.device.type)


def warm_up(name: str, model: Transformer) -> None:
    """Attend once, with a single token, so that a kernel that was never compiled on this machine is compiled now."""
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.paged.metadata import ForwardMeta
    from tiny_llm.paged.sequence import PagedSequence

    weight, config = model.embedding.weight, model.config
    sequence = PagedSequence(PageAllocator(2), PAGE_SIZE)
    sequence.reserve(1)
    meta = ForwardMeta.build([sequence], [1], weight.device)
    pages = weight.new_zeros(2, PAGE_SIZE, config.num_kv_heads, config.head_dim)
    query = weight.new_zeros(1, config.num_heads, config.head_dim)
    attention = choose_for(name, model)
    with Console(stderr=True).status(
        "compiling the attention kernel: half a minute, once (kept for the next time) …"
    ):
        attention(query, pages, pages, meta, 1.0, True)


def generate(
    attention: PagedAttention,
    model: Transformer,
    prompt_ids: Sequence[int],
    max_tokens: int,
    end_ids: Collection[int],
    sample: Sample,
) -> Iterator[int]:
    """One request's tokens, from a pool of its own."""
    from tiny_llm.batch import Request
    from tiny_llm.paged.batch import generate_paged

    request = Request(prompt_ids, max_tokens, end_ids, sample)
    return generate_paged(make_batch(model, [request], attention, 1, len(prompt_ids)), request)


def make_batch(
    model: Transformer,
    requests: Sequence[Request],
    attention: PagedAttention,
    max_running: int,
    chunk_size: int,
) -> PagedBatch:
    """An empty batch with a pool that holds the longest ``max_running`` of the requests at a time."""
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.paged.batch import PagedBatch
    from tiny_llm.paged.pool import KvPool

    weight = model.embedding.weight
    num_pages = 1 + max(1, sum(pages_needed(model, requests)[:max_running]))
    pool = KvPool(model.config, num_pages, PAGE_SIZE, weight.dtype, weight.device)
    return PagedBatch(model, pool, PageAllocator(num_pages), max_running, chunk_size, attention)


def pages_needed(model: Transformer, requests: Sequence[Request]) -> list[int]:
    """How many blocks each of some requests may come to need, the most first."""
    from tiny_llm.paged.pool import pages_for

    limit = model.config.max_positions
    lengths = [min(len(each.prompt_ids) + each.max_tokens, limit) for each in requests]
    return sorted((pages_for(length, PAGE_SIZE) for length in lengths), reverse=True)
