"""Week 4's engines, as the programs run them: on pages that requests share, with a pool of the right size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from programs.cores import PAGE_SIZE, choose_for, make_runner, pages_needed

if TYPE_CHECKING:
    from tiny_llm.model import Transformer
    from tiny_llm.prefix.page_cache import BasePageCache
    from tiny_llm.request import Request
    from tiny_llm.scheduling.batch import ExtendBatch
    from tiny_llm.scheduling.scheduler import Scheduler

SCARCE_PAGE_SIZE = 4
"""Tokens per page where pages are to run out: of pages of 16, short requests need too few to compete for them."""


def extend_batch(
    model: Transformer,
    seats: int,
    num_pages: int,
    token_budget: int,
    attention: str = "auto",
    *,
    chunk_size: int | None = None,
    page_size: int = PAGE_SIZE,
    share: bool = True,
) -> ExtendBatch:
    """Day 4.2's engine on pages of its own.

    Args:
        model: the model.
        seats: how many requests run at a time at most.
        num_pages: how many pages there are, the null page left out.
        token_budget: how many tokens a step brings at most.
        attention: the name of a way to attend.
        chunk_size: how many of them one request brings at most; None: no fewer than all.
        page_size: tokens per page.
        share: whether requests share pages.
    """
    from tiny_llm.scheduling.scheduler import Scheduler

    cache = _page_cache(num_pages, page_size, share)
    scheduler = Scheduler(cache, model.config.max_positions, seats, token_budget, chunk_size)
    return _batch(model, scheduler, attention)


def preempt_batch(
    model: Transformer,
    seats: int,
    num_pages: int,
    token_budget: int,
    attention: str = "auto",
    *,
    page_size: int = PAGE_SIZE,
    share: bool = True,
) -> ExtendBatch:
    """Day 4.3's engine on pages of its own; arguments as for :func:`extend_batch`."""
    from tiny_llm.scheduling.preemption import PreemptiveScheduler

    cache = _page_cache(num_pages, page_size, share)
    scheduler = PreemptiveScheduler(cache, model.config.max_positions, seats, token_budget)
    return _batch(model, scheduler, attention)


def extend_batch_for(
    model: Transformer, requests: Sequence[Request], seats: int, token_budget: int, attention: str = "auto"
) -> ExtendBatch:
    """Day 4.2's engine, with pages for the longest ``seats`` of some requests at a time."""
    num_pages = max(1, sum(pages_needed(model, requests)[:seats]))
    return extend_batch(model, seats, num_pages, token_budget, attention)


def preempt_batch_for(
    model: Transformer, requests: Sequence[Request], seats: int, token_budget: int, attention: str = "auto"
) -> ExtendBatch:
    """Day 4.3's engine with too few pages for some requests: those of the longest one, and an eighth more.

    So every request can come to its end, and two long ones can't at the same time.
    """
    longest = max(1, *pages_needed(model, requests, SCARCE_PAGE_SIZE))
    num_pages = longest + longest // 8
    return preempt_batch(model, seats, num_pages, token_budget, attention, page_size=SCARCE_PAGE_SIZE)


def _page_cache(num_pages: int, page_size: int, share: bool) -> BasePageCache:
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.prefix.page_cache import BasePageCache
    from tiny_llm.prefix.trie_cache import TrieCache

    kind = TrieCache if share else BasePageCache
    return kind(PageAllocator(1 + num_pages), page_size)


def _batch(model: Transformer, scheduler: Scheduler, attention: str) -> ExtendBatch:
    from tiny_llm.scheduling.batch import ExtendBatch

    cache = scheduler.cache
    runner = make_runner(model, cache.allocator.num_pages, choose_for(attention, model), cache.page_size)
    return ExtendBatch(runner, scheduler)
