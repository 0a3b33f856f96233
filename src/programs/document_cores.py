"""Day 4.5's engine, as the programs run it: questions about documents, on a pool of the right size."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from programs.cores import PAGE_SIZE, choose_for, pages_needed

if TYPE_CHECKING:
    from tiny_llm.documents.attention import Remedy
    from tiny_llm.documents.batch import DocumentBatch
    from tiny_llm.documents.prompt import Segments
    from tiny_llm.documents.request import DocumentRequest
    from tiny_llm.generate import Sample
    from tiny_llm.model import Transformer
    from tiny_llm.request import Request


def document_batch(
    model: Transformer,
    seats: int,
    num_pages: int,
    token_budget: int,
    attention: str = "auto",
    *,
    page_size: int = PAGE_SIZE,
    remedy: Remedy | None = None,
) -> DocumentBatch:
    """Day 4.5's engine on pages of its own.

    Args:
        model: the model.
        seats: how many requests run at a time at most.
        num_pages: how many pages there are, the null page left out.
        token_budget: how many tokens a step brings at most.
        attention: the name of a way to attend.
        page_size: tokens per page.
        remedy: how to weigh the documents; None: as they are.
    """
    from tiny_llm.arrays import device_of
    from tiny_llm.documents.attention import NO_REMEDY
    from tiny_llm.documents.batch import DocumentBatch
    from tiny_llm.documents.page_cache import DocumentCache
    from tiny_llm.documents.runner import DocumentRunner
    from tiny_llm.documents.scheduler import DocumentScheduler
    from tiny_llm.paged.allocator import PageAllocator
    from tiny_llm.paged.pool import KvPool

    weight = model.embedding.weight
    pool = KvPool(model.config, 1 + num_pages, page_size, weight.dtype, device_of(weight))
    cache = DocumentCache(PageAllocator(1 + num_pages), page_size)
    limits = {"num_seats": seats, "token_budget": token_budget}
    scheduler = DocumentScheduler(cache, model.config.max_positions, **limits)
    runner = DocumentRunner(model, pool, choose_for(attention, model), remedy or NO_REMEDY)
    return DocumentBatch(runner, scheduler)


def document_batch_for(
    model: Transformer, requests: Sequence[Request], seats: int, token_budget: int, attention: str = "auto"
) -> DocumentBatch:
    """Day 4.5's engine, with pages for the longest ``seats`` of some ordinary requests at a time."""
    num_pages = max(1, sum(pages_needed(model, requests)[:seats]))
    return document_batch(model, seats, num_pages, token_budget, attention)


def answer_documents(
    model: Transformer,
    requests: Sequence[DocumentRequest],
    seats: int,
    token_budget: int,
    attention: str = "auto",
) -> None:
    """Bring some requests to their ends in Day 4.5's engine, with pages for all of them.

    Args:
        model: the model.
        requests: document requests.
        seats: how many of them run at a time at most.
        token_budget: how many tokens a step brings at most.
        attention: the name of a way to attend.
    """
    from tiny_llm.engine_core import generate_all

    num_pages = sum(document_pages(model, each) for each in requests)
    generate_all(document_batch(model, seats, num_pages, token_budget, attention), requests)


def document_pages(model: Transformer, request: DocumentRequest, page_size: int = PAGE_SIZE) -> int:
    """How many pages a document request may come to need, if none of them is shared."""
    from tiny_llm.paged.limits import most_tokens
    from tiny_llm.paged.places import pages_for

    system = len(request.segments.system)
    lengths = [system, *(system + len(document) for _, document in request.documents)]
    lengths.append(most_tokens(request, model.config.max_positions - request.start))
    return sum(pages_for(length, page_size) for length in lengths)


def generate_on_document_pages(
    model: Transformer,
    segments: Segments,
    max_tokens: int,
    end_ids: Collection[int],
    sample: Sample,
    remedy: Remedy | None = None,
) -> Iterator[int]:
    """One document prompt's tokens, as they come, from Day 4.5's engine with a pool of its own.

    Raises:
        ValueError: the prompt can't run, as :meth:`EngineCore.push` says.
    """
    from tiny_llm.documents.request import DocumentRequest

    request = DocumentRequest(segments, max_tokens, end_ids, sample)
    core = document_batch(model, 1, document_pages(model, request), len(segments.token_ids), remedy=remedy)
    core.push(request)
    given = 0
    try:
        while core.requests:
            core.step()
            if request.error is not None:
                raise ValueError(request.error)
            yield from request.output[given:]
            given = request.num_generated
    finally:
        core.abort([request])
