"""Day 4.3's scheduler, brought by hand into any state, and all that it knows as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

from week_3.pages import allocator_of, pages_needed

from coursekit.check import CheckFailed, check_equal
from coursekit.checking.wording import plural

from .beside_preempting import check_pages, held_by_waiting

CACHES = ("base", "trie")


def cache_of(lab: Any, kind: str, pages: int, P: int = 3) -> Any:
    """A page cache with so many pages beside the null page."""
    prefix = lab.prefix
    made = {"base": prefix.page_cache.BasePageCache, "trie": prefix.trie_cache.TrieCache}[kind]
    return made(allocator_of(lab, pages + 1), P)


def scheduler_of(
    lab: Any,
    *,
    pages: int = 12,
    P: int = 3,
    kind: str = "trie",
    limit: int = 64,
    fair: bool = False,
    **options: Any,
) -> Any:
    """A scheduler without requests. Unless it is to be fair, it needs nothing of Task 4."""
    cache = cache_of(lab, kind, pages, P)
    scheduler = lab.scheduling.preemption.PreemptiveScheduler(cache, limit, **options)
    if not fair:
        nothing = lambda *args: None  # noqa: E731
        scheduler.fairness = SimpleNamespace(
            served=Counter[str](), arrive=nothing, depart=nothing, charge=nothing
        )
        scheduler.charge = nothing
    return scheduler


def text(count: int, seed: int = 0) -> list[int]:
    """Token ids, no two alike; those of two seeds have none in common."""
    return list(range(100 * seed + 1, 100 * seed + 1 + count))


def wait(
    lab: Any,
    scheduler: Any,
    prompt: Sequence[int],
    *,
    client: str,
    level: int = 0,
    generated: Sequence[int] = (),
    resumes: bool = False,
    max_tokens: int = 9,
) -> Any:
    """A request that waits; it is called by its client's name."""
    request = lab.request.Request(prompt, max_tokens, client=client)
    request.token_ids.extend(generated)
    scheduler.push(request)
    standing = scheduler.waiting[-1]
    standing.level, standing.resumes = level, resumes
    return standing


def run(
    lab: Any,
    scheduler: Any,
    prompt: Sequence[int],
    computed: int | None = None,
    *,
    more: int = 0,
    **options: Any,
) -> Any:
    """A request that runs: so many of its tokens are computed, or all but the newest, in pages of its own.

    What the cache has of them is shared; what is full is published. `more` pages are taken for what is still to come.
    """
    standing, cache = wait(lab, scheduler, prompt, **options), scheduler.cache
    sequence, ids = standing.sequence, standing.request.token_ids
    computed = len(ids) - 1 if computed is None else computed
    scheduler.waiting.remove(standing)
    scheduler.running.append(standing)
    if computed:
        cache.match(sequence, ids[: computed + 1])
        cache.acquire(sequence, computed - sequence.length)
        cache.publish(sequence, ids, computed)
        sequence.advance(computed - sequence.length)
        cache.commit()
    if more:
        sequence.pages += cache.allocator.allocate(more)
    return standing


def plan(lab: Any, scheduler: Any, standing: Any, count: int = 1) -> None:
    """A request that runs is in the step that is being planned: its pages are there already, by hand."""
    had = standing.sequence.length
    missing = pages_needed(had + count, scheduler.cache.page_size) - len(standing.sequence.pages)
    standing.sequence.pages += scheduler.cache.allocator.allocate(max(0, missing))
    scheduler.planned.append(lab.scheduling.standing.Chunk(standing, count, had, 0, True))


def take(scheduler: Any, leave: int = 0) -> list[int]:
    """Another user takes the free pages, all but some."""
    allocator = scheduler.cache.allocator
    pages: list[int] = allocator.allocate(len(allocator.free_pages) - leave)
    return pages


def name(standing: Any) -> str | None:
    """What a request is called here: its client."""
    if standing is None:
        return None
    if not hasattr(standing, "request"):
        raise CheckFailed(f"a Standing expected, or None; a value of type {type(standing).__name__} found")
    called: str = standing.request.client
    return called


def names(standings: Collection[Any]) -> list[str | None]:
    return [name(each) for each in standings]


def preempted(scheduler: Any) -> list[str]:
    """Which requests `preempted` lists, by name."""
    for each in scheduler.preempted:
        if not hasattr(each, "client"):
            raise CheckFailed(
                f"`preempted` should list requests; it holds a value of type {type(each).__name__}"
            )
    return [each.client for each in scheduler.preempted]


def books(scheduler: Any) -> dict[str, Any]:
    """All that a scheduler knows: two of these are equal where nothing has changed."""
    everybody = sorted(scheduler.running + scheduler.waiting, key=lambda each: each.rank)
    return {
        "the requests that run": names(scheduler.running),
        "the requests that wait": names(scheduler.waiting),
        "the pages of each request": {name(each): list(each.sequence.pages) for each in everybody},
        "the computed tokens of each request": {name(each): each.sequence.length for each in everybody},
        "the level of each request": {name(each): each.level for each in everybody},
        "the requests that were preempted": preempted(scheduler),
        "how many preemptions there were": scheduler.preemptions,
        "how many requests are in the step": len(scheduler.planned),
        "the free pages": sorted(scheduler.cache.allocator.free_pages),
        "how many pages are available": scheduler.cache.available,
        "how many pages were evicted": scheduler.cache.evicted,
    }


def check_unchanged(scheduler: Any, before: dict[str, Any], when: str) -> None:
    """Compare what a scheduler knows with what it knew, item by item."""
    __tracebackhide__ = True
    after = books(scheduler)
    for what, value in before.items():
        check_equal(after[what], value, name=f"{what}, {when}")


def check_lost(scheduler: Any, when: str) -> None:
    """Each request that `preempted` names has left `running`, waits, and has no pages, nor a path in the tree."""
    __tracebackhide__ = True
    for called in preempted(scheduler):
        if called in names(scheduler.running):
            raise CheckFailed(f"{when}: {called} was preempted, and is still in `running`")
        if called not in names(scheduler.waiting):
            raise CheckFailed(f"{when}: {called} was preempted, and is not in `waiting`")
    for each in scheduler.waiting:
        if each.sequence.pages:
            raise CheckFailed(
                f"{when}: {name(each)} was preempted, and still has the pages {each.sequence.pages}: the page cache "
                "has to release all of them"
            )
        if each.sequence in getattr(scheduler.cache, "tips", ()):
            raise CheckFailed(
                f"{when}: {name(each)} was preempted, and the tree still notes its path (`tips`): its pages were not "
                "released through the page cache"
            )


def check_books(scheduler: Any, when: str) -> None:
    """The pages are where the requests that run say; the others have none."""
    __tracebackhide__ = True
    for called, pages, length in held_by_waiting(scheduler):
        if pages or length:
            raise CheckFailed(
                f"{when}, {f'request {called}' if called else 'a request'} waits and has "
                f"{plural(length, 'token')} in the pages {pages}"
            )
    try:
        check_pages(scheduler)
    except RuntimeError as error:
        raise CheckFailed(f"{when}: {error}") from error
