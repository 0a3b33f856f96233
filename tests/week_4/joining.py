"""Joins as the tests of Day 4.5 handle them: brought by hand into any state, with a name for each member."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from week_3.pages import allocator_of, pages_needed

from .beside_joining import NAMES

P = 3


def text(count: int, seed: int = 0) -> list[int]:
    """Token ids, no two alike; those of two seeds have none in common."""
    return list(range(100 * seed + 1, 100 * seed + 1 + count))


def segments_of(lab: Any, system: int, documents: Sequence[int], question: int = 2, seed: int = 0) -> Any:
    """Segments with so many tokens. The first document is called A, the next B; a `seed` gives another question."""
    return named(lab, system, {NAMES[n]: count for n, count in enumerate(documents)}, question, seed)


def named(lab: Any, system: int, documents: dict[str, int], question: int = 2, seed: int = 0) -> Any:
    """The same for documents by name: where the name is equal, the tokens are."""
    bodies = (tuple(text(count, 1 + NAMES.index(name))) for name, count in documents.items())
    return lab.documents.prompt.Segments(tuple(text(system)), tuple(bodies), tuple(text(question, 20 + seed)))


def request_of(lab: Any, segments: Any, max_tokens: int = 4, **options: Any) -> Any:
    return lab.documents.request.DocumentRequest(segments, max_tokens, **options)


def cache_of(lab: Any, pages: int = 60, page_size: int = P) -> Any:
    """A page cache with so many pages beside the null page."""
    return lab.documents.page_cache.DocumentCache(allocator_of(lab, pages + 1), page_size)


def join_of(lab: Any, cache: Any, request: Any, rank: int = 0) -> Any:
    """A join without pages."""
    sequence = lab.paged.sequence.PagedSequence(cache.allocator, cache.page_size)
    return lab.documents.join.make_join(lab.scheduling.standing.Standing(request, sequence, rank), request)


def members_of(join: Any) -> list[Any]:
    """Its branches and its question."""
    return [*join.question.branches, join.question]


def give_pages(member: Any, shared: Sequence[int] = (), computed: int = 0, more: int = 0) -> None:
    """By hand: pages for all tokens of a member, the first of them given; so many of its tokens are computed."""
    sequence = member.sequence
    wanted = pages_needed(len(member.request.token_ids) + more, sequence.page_size)
    sequence.allocator.share(list(shared)[:wanted])
    sequence.pages = list(shared)[:wanted]
    sequence.pages += sequence.allocator.allocate(wanted - len(sequence.pages))
    sequence.length = computed


def laid_out(
    lab: Any, segments: Any, page_size: int, seed: int = 0, computed: str = "all", **options: Any
) -> Any:
    """A join with pages in no order. The branches share the system prompt's full pages."""
    allocator = allocator_of(lab, 200)
    random.Random(seed).shuffle(allocator.free_pages)
    cache = lab.documents.page_cache.DocumentCache(allocator, page_size)
    join = join_of(lab, cache, request_of(lab, segments, **options))
    shared: list[int] = []
    for member in members_of(join):
        isolated = hasattr(member, "branches")
        total = len(member.request.token_ids)
        give_pages(member, () if isolated else shared, total if computed == "all" else 0)
        shared = shared or member.sequence.pages[: len(segments.system) // page_size]
    return join
