"""Schedulers as the tests of Day 4.2 handle them: requests on their way, and all that is known of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from week_2.continuous import new_request
from week_3.pages import allocator_of, pages_needed

from coursekit.check import CheckFailed, check_equal
from coursekit.checking.objects import values_of

from .beside_schedules import books, check_pages, ranks_of, shares


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


def ranks(some: Iterable[Any]) -> list[int]:
    """Which requests these are: the first that was pushed is 0."""
    return ranks_of(list(some))


def counts(plan: Iterable[Any]) -> list[tuple[int, int]]:
    """For each chunk: which request, and how many tokens it brings."""
    return [(rank, count) for rank, _, _, count in shares(list(plan))]


def prefix(token_ids: Sequence[int]) -> str:
    """Tokens as `tree` writes them."""
    return " ".join(map(str, token_ids))


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
    for rank, *held in values_of(scheduler.waiting, "rank", "sequence.length", "sequence.pages"):
        assert held == [0, []], (
            f"{when}: request {rank} waits; it should hold nothing, and has (tokens, pages) {tuple(held)}"
        )
    try:
        check_pages(scheduler, others)
    except RuntimeError as error:
        raise CheckFailed(f"{when}, the books of the pages don't balance: {error}") from error


def check_plan(scheduler: Any, plan: Sequence[Any], line: Sequence[Any], when: str) -> None:
    """Whether a step is what the rules say, given the requests that ran before it in the order of serving."""
    __tracebackhide__ = True
    P, left = scheduler.cache.page_size, scheduler.token_budget
    told = f"{when}: a budget of {left}, chunks of {scheduler.chunk_size}, the step {counts(plan)}"
    chunks = shares(plan)
    taking_part = [rank for rank, *_ in chunks]
    assert len(set(taking_part)) == len(taking_part), f"{told}: a request has more than one chunk"
    total = sum(count for *_, count in chunks)
    assert total <= left, f"{told}: {total} tokens are more than the budget"
    expected = (ranks(line) + ranks(scheduler.begun))[: len(plan)]
    assert taking_part == expected, f"{told}: it should serve the requests in the order {expected}"
    now = values_of(plan, "running.request.token_ids", "running.sequence.length", "running.sequence.pages")
    for (rank, had, found, count), (ids, length, pages) in zip(chunks, now, strict=True):
        due = len(ids) - had - found
        most = min(due, left, scheduler.chunk_size)
        assert count == most, (
            f"{told}: request {rank} brings {count} tokens; {due} are due, and {left} were left of the budget"
        )
        assert length == had + found, (
            f"{told}: request {rank} had {had} tokens, {found} were found, and its length is {length}"
        )
        needed = pages_needed(length + count, P)
        assert len(pages) == needed, (
            f"{told}: request {rank} has {len(pages)} pages; its tokens need {needed} after the step"
        )
        left -= count
    served = len(plan) == len(line) + len(scheduler.begun)
    assert served or left == 0, f"{told}: {left} of the budget are left, and not all that run take part"
