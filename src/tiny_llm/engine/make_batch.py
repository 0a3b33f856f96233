"""An engine core of the right size for a model (given code)."""

from __future__ import annotations

from tiny_llm.documents.attention import NO_REMEDY, Remedy
from tiny_llm.documents.page_cache import DocumentCache
from tiny_llm.documents.runner import DocumentRunner
from tiny_llm.documents.scheduler import DocumentScheduler
from tiny_llm.engine.batch import ServedBatch
from tiny_llm.engine.limits import Limits
from tiny_llm.model import Transformer
from tiny_llm.paged.allocator import PageAllocator
from tiny_llm.paged.attention_backends import choose_attention
from tiny_llm.paged.pool import KvPool


def make_batch(
    model: Transformer,
    limits: Limits,
    attention: str = "auto",
    remedy: Remedy = NO_REMEDY,
    max_waiting: int = 256,
) -> ServedBatch:
    """Day 4.5's engine with a pool of its own, which samples a whole step at once.

    Args:
        model: the model.
        limits: the sizes.
        attention: the name of a way to attend, for :func:`choose_attention`.
        remedy: how to weigh documents.
        max_waiting: how many requests may wait in it for a seat. The scheduler chooses among these, by their
            priorities and clients.
    """
    weight, num_pages = model.embedding.weight, limits.num_pages + 1  # the null page, too
    pool = KvPool(model.config, num_pages, limits.page_size, weight.dtype, weight.device)
    cache = DocumentCache(PageAllocator(num_pages), limits.page_size)
    scheduler = DocumentScheduler(
        cache, model.config.max_positions, num_seats=limits.num_seats, token_budget=limits.token_budget
    )
    attend = choose_attention(attention, weight.dtype, weight.device)
    runner = DocumentRunner(model, pool, attend, remedy)
    return ServedBatch(runner, scheduler, max_requests=limits.num_seats + max_waiting)
