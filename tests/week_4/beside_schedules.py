"""All that a scheduler of Day 4.2 knows, as plain values, read where it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from coursekit.beside import beside

from .beside_prefixes import prefixes

Share = tuple[int, int, int, int]  # which request, and of its chunk: had, found, count


@beside
def ranks_of(some: Iterable[Any]) -> list[int]:
    return [each.rank for each in some]


@beside
def shares(plan: Iterable[Any]) -> list[Share]:
    """For each chunk: which request, tokens that it had, tokens found, tokens to compute."""
    return [(chunk.running.rank, chunk.had, chunk.found, chunk.count) for chunk in plan]


@beside
def tree(cache: Any) -> dict[str, int]:
    """The tokens from the root to each node as text, and its page; a cache without a tree has none."""
    found = prefixes(cache)
    return {" ".join(map(str, prefix)): found[prefix] for prefix in sorted(found)}


@beside
def books(scheduler: Any) -> dict[str, Any]:
    """All that is known between two steps: two of these are equal where nothing has changed."""
    everyone = sorted(scheduler.running + scheduler.waiting, key=lambda each: each.rank)
    return {
        "the requests that run": ranks_of(scheduler.running),
        "the requests that wait": ranks_of(scheduler.waiting),
        "the tokens of each": [list(each.request.token_ids) for each in everyone],
        "the `error` of each": [each.request.error for each in everyone],
        "how many tokens of each are in the pool": [each.sequence.length for each in everyone],
        "the pages of each": [list(each.sequence.pages) for each in everyone],
        "the tree": tree(scheduler.cache),
        "the references of the pages": list(scheduler.cache.allocator.references),
        "the pages available": scheduler.cache.available,
        "the step being planned": shares(scheduler.planned),
        "the requests that have begun in it": ranks_of(scheduler.begun),
        "the tokens found in all steps": scheduler.reused,
        "the number of requests that were pushed": scheduler.pushed,
        "what `had` holds, by request": {each.rank: had for each, had in scheduler.had.items()},
    }


@beside
def check_pages(scheduler: Any, others: Iterable[Any]) -> None:
    """The cache's own `check`: the requests that run hold pages, and these sequences."""
    scheduler.cache.check([*(each.sequence for each in scheduler.running), *others])


@beside
def ran(scheduler: Any, plan: Sequence[Any], token: int = 0) -> list[int]:
    """By hand: the model has run. Requests with no token due get one, or leave; the ranks of those that leave."""
    for chunk in plan:
        chunk.running.sequence.advance(chunk.count)
    scheduler.commit()
    gone = []
    for chunk in plan:
        each = chunk.running
        if each.due == 0:
            each.request.token_ids.append(token)
        if each.request.finished(scheduler.max_positions):
            scheduler.running.remove(each)
            scheduler.cache.release(each.sequence)
            gone.append(each.rank)
    return gone
