"""Where the requests of Day 4.3's scheduler stand, read where it is."""

from __future__ import annotations

from typing import Any

from coursekit.beside import beside


@beside
def standing(scheduler: Any) -> tuple[list[tuple[Any, int, int, bool]], Any]:
    """Of each request its level, its rank and whether it waits; and the request that must begin in the next step.

    That is the next one that waits, if all that run have lower levels; otherwise None.
    """
    scheduler.got.clear()
    places = [
        (each.request, each.level, each.rank, waits)
        for some, waits in ((scheduler.running, False), (scheduler.waiting, True))
        for each in some
    ]
    if not scheduler.waiting:
        return places, None
    first = min(scheduler.waiting, key=scheduler.turn)
    above = all(each.level < first.level for each in scheduler.running)
    return places, first.request if above else None


@beside
def held_by_waiting(scheduler: Any) -> list[tuple[str, list[int], int]]:
    """Of each request that waits its client, its pages, and how many of its tokens are in the pool."""
    return [
        (each.request.client, list(each.sequence.pages), each.sequence.length) for each in scheduler.waiting
    ]


@beside
def check_pages(scheduler: Any) -> None:
    """The cache's own `check`: only the requests that run hold pages."""
    scheduler.cache.check([each.sequence for each in scheduler.running])
