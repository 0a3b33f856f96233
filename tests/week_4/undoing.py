"""`undo` as the tests of Day 4.2 call it: where a request is not released, they say which mistake it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from week_3.pages import pages_needed

from coursekit.check import check_equal


def lengths(some: Iterable[Any]) -> dict[Any, int]:
    """How many tokens of each are in the pool."""
    return {each: each.sequence.length for each in some}


def undo(scheduler: Any, had: Mapping[Any, int], what: str) -> None:
    """`undo`. When it calls the cache's `withdraw`, each request has what it had before the step; others had nothing.

    Only then may a cache withdraw. What they have is compared as (tokens, pages).
    """
    __tracebackhide__ = True
    cache, seen = scheduler.cache, list[list[tuple[int, int]]]()
    everyone = sorted(scheduler.running + scheduler.waiting, key=lambda each: each.rank)
    now = _held(everyone)
    before = [(n, pages_needed(n, cache.page_size)) for n in (had.get(each, 0) for each in everyone)]
    planned = [chunk.running for chunk in scheduler.planned]
    suspects = {
        "no request was released before `withdraw`": now,
        "what was found in this step stays: release to what the request had before the match": [
            (held[0], pages_needed(held[0], cache.page_size)) if each in had else was
            for each, held, was in zip(everyone, now, before, strict=True)
        ],
        "only the requests in the plan were released; one that has matched may have no chunk yet": [
            was if each in planned or each in scheduler.waiting else held
            for each, held, was in zip(everyone, now, before, strict=True)
        ],
        "the requests that have begun in the step were not released": [
            held if each in scheduler.begun else was
            for each, held, was in zip(everyone, now, before, strict=True)
        ],
        "the requests that wait were not released; one of them may have matched": [
            held if each in scheduler.waiting else was
            for each, held, was in zip(everyone, now, before, strict=True)
        ],
    }
    whole = cache.withdraw

    def watched() -> None:
        seen.append(_held(everyone))
        whole()

    cache.withdraw = watched
    try:
        scheduler.undo()
    finally:
        del cache.withdraw
    assert seen, (
        f"`undo` of {what}: the cache was not told to `withdraw` what was published, and never computed"
    )
    name = f"the (tokens, pages) of each request when `undo` of {what} calls `withdraw`"
    check_equal(seen[0], before, name=name, suspects=suspects)


def _held(everyone: Iterable[Any]) -> list[tuple[int, int]]:
    """How many tokens and pages each has."""
    return [(each.sequence.length, len(each.sequence.pages)) for each in everyone]
