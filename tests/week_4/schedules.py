"""Schedulers as the tests of Day 4.2 handle them: requests on their way, and all that is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from week_2.continuous import new_request
from week_3.pages import allocator_of, pages_needed

from coursekit.check import CheckFailed, check_equal

from .prefixes import prefixes

Share = tuple[int, int, int, int]  # which request, and of its chunk: had, found, count


def text(count: int, seed: int = 0) -> list[int]:
    """Token ids, no two alike; those of two seeds have none in common."""
    return list(range(1000 * seed + 1, 1000 * seed + 1 + count))


def cache_of(lab: Any, pages: int, P: int, trie: bool = True) -> Any:
    """A page cache over so many pages that can be handed out."""
    kind = lab.prefix.trie_cache.TrieCache if trie else lab.prefix.page_cache.BasePageCache
    return kind(allocator_of(lab, pages + 1), P)


def scheduler_of(
    lab: Any,
    *,
    pages: int = 60,
    P: int = 3,
    trie: bool = True,
    seats: int = 4,
    budget: int = 12,
    chunk: int | None = None,
    limit: int = 500,
) -> Any:
    """A scheduler without requests."""
    cache = cache_of(lab, pages, P, trie)
    return lab.scheduling.scheduler.Scheduler(cache, limit, seats, budget, chunk)


def wait(lab: Any, scheduler: Any, prompt: Sequence[int], max_tokens: int = 4, **options: Any) -> Any:
    """A request that waits behind all others. Which one it is, its rank says."""
    scheduler.push(new_request(lab, prompt, max_tokens, **options))
    return scheduler.waiting[-1]


def run(
    lab: Any, scheduler: Any, prompt: Sequence[int], computed: int = 0, max_tokens: int = 4, **options: Any
) -> Any:
    """By hand: a request in the middle of its way. So many tokens are computed, and its full pages published."""
    each = wait(lab, scheduler, prompt, max_tokens, **options)
    scheduler.waiting.remove(each)
    scheduler.running.append(each)
    compute(scheduler, each, computed)
    return each


def compute(scheduler: Any, each: Any, count: int) -> None:
    """By hand: more tokens of a request are computed, in a step of their own."""
    cache, sequence = scheduler.cache, each.sequence
    cache.acquire(sequence, count)
    cache.publish(sequence, each.request.token_ids, sequence.length + count)
    sequence.advance(count)
    cache.commit()


def plant(lab: Any, scheduler: Any, token_ids: Sequence[int]) -> None:
    """By hand: a request with these tokens was here, and has ended. The tree keeps its full pages."""
    each = run(lab, scheduler, token_ids)
    found = scheduler.cache.match(each.sequence, token_ids)
    compute(scheduler, each, len(token_ids) - found)
    scheduler.running.remove(each)
    scheduler.cache.release(each.sequence)


def leave_free(lab: Any, scheduler: Any, count: int) -> Any:
    """By hand: another user of the allocator takes all free pages but so many; it holds them in a sequence."""
    allocator = scheduler.cache.allocator
    other = lab.paged.sequence.PagedSequence(allocator, scheduler.cache.page_size)
    other.pages = allocator.allocate(len(allocator.free_pages) - count)
    return other


def open_step(scheduler: Any, left: int) -> None:
    """By hand: a step is being planned, and so much of its budget is left."""
    scheduler.planned, scheduler.begun, scheduler.left = [], [], left


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


def ranks(some: Iterable[Any]) -> list[int]:
    """Which requests these are: the first that was pushed is 0."""
    return [each.rank for each in some]


def shares(plan: Iterable[Any]) -> list[Share]:
    """For each chunk: which request, tokens that it had, tokens found, tokens to compute."""
    return [(chunk.running.rank, chunk.had, chunk.found, chunk.count) for chunk in plan]


def counts(plan: Iterable[Any]) -> list[tuple[int, int]]:
    """For each chunk: which request, and how many tokens it brings."""
    return [(chunk.running.rank, chunk.count) for chunk in plan]


def tree(cache: Any) -> dict[str, int]:
    """The tokens from the root to each node as text, and its page; a cache without a tree has none."""
    found = prefixes(cache)
    return {" ".join(map(str, prefix)): found[prefix] for prefix in sorted(found)}


def prefix(token_ids: Sequence[int]) -> str:
    """Tokens as `tree` writes them."""
    return " ".join(map(str, token_ids))


def books(scheduler: Any) -> dict[str, Any]:
    """All that is known between two steps: two of these are equal where nothing has changed."""
    everyone = sorted(scheduler.running + scheduler.waiting, key=lambda each: each.rank)
    return {
        "the requests that run": ranks(scheduler.running),
        "the requests that wait": ranks(scheduler.waiting),
        "the tokens of each": [list(each.request.token_ids) for each in everyone],
        "the `error` of each": [each.request.error for each in everyone],
        "how many tokens of each are in the pool": [each.sequence.length for each in everyone],
        "the pages of each": [list(each.sequence.pages) for each in everyone],
        "the tree": tree(scheduler.cache),
        "the references of the pages": list(scheduler.cache.allocator.references),
        "the pages available": scheduler.cache.available,
        "the step being planned": shares(scheduler.planned),
        "the requests that have begun in it": ranks(scheduler.begun),
        "the tokens found in all steps": scheduler.reused,
        "the number of requests that were pushed": scheduler.pushed,
        "what `had` holds, by request": {each.rank: had for each, had in scheduler.had.items()},
    }


def check_books(
    scheduler: Any,
    before: dict[str, Any],
    when: str,
    *others: Any,
    suspects: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Nothing has changed since. For each part there may be mistakes, with what they would make of it."""
    __tracebackhide__ = True
    now = books(scheduler)
    for what, expected in before.items():
        check_equal(now[what], expected, name=f"{what}, {when}", suspects=(suspects or {}).get(what))
    check_sound(scheduler, when, *others)


def check_sound(scheduler: Any, when: str, *others: Any) -> None:
    """The pages are all accounted for, and no request that waits has any. Other users hold theirs in sequences."""
    __tracebackhide__ = True
    for each in scheduler.waiting:
        held = (each.sequence.length, each.sequence.pages)
        assert held == (0, []), (
            f"{when}: request {each.rank} waits; it should hold nothing, and has (tokens, pages) {held}"
        )
    try:
        scheduler.cache.check([*(each.sequence for each in scheduler.running), *others])
    except RuntimeError as error:
        raise CheckFailed(f"{when}, the books of the pages don't balance: {error}") from error


def check_plan(scheduler: Any, plan: Sequence[Any], line: Sequence[Any], when: str) -> None:
    """Whether a step is what the rules say, given the requests that ran before it in the order of serving."""
    __tracebackhide__ = True
    P, left = scheduler.cache.page_size, scheduler.token_budget
    told = f"{when}: a budget of {left}, chunks of {scheduler.chunk_size}, the step {counts(plan)}"
    taking_part = ranks(chunk.running for chunk in plan)
    assert len(set(taking_part)) == len(taking_part), f"{told}: a request has more than one chunk"
    total = sum(chunk.count for chunk in plan)
    assert total <= left, f"{told}: {total} tokens are more than the budget"
    expected = (ranks(line) + ranks(scheduler.begun))[: len(plan)]
    assert taking_part == expected, f"{told}: it should serve the requests in the order {expected}"
    for chunk in plan:
        rank, sequence = chunk.running.rank, chunk.running.sequence
        due = len(chunk.running.request.token_ids) - chunk.had - chunk.found
        most = min(due, left, scheduler.chunk_size)
        assert chunk.count == most, (
            f"{told}: request {rank} brings {chunk.count} tokens; {due} are due, and {left} were left of the budget"
        )
        assert sequence.length == chunk.had + chunk.found, (
            f"{told}: request {rank} had {chunk.had} tokens, {chunk.found} were found, and its length is "
            f"{sequence.length}"
        )
        needed = pages_needed(sequence.length + chunk.count, P)
        assert len(sequence.pages) == needed, (
            f"{told}: request {rank} has {len(sequence.pages)} pages; its tokens need {needed} after the step"
        )
        left -= chunk.count
    served = len(plan) == len(line) + len(scheduler.begun)
    assert served or left == 0, f"{told}: {left} of the budget are left, and not all that run take part"
